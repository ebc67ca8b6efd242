// @ts-nocheck This runs in Node, whose types are not installed for the check of the pages.
// A stand-in for VS Code's native logging module, which has to be compiled and is not installed here. Without it, every
// program of the editor prints a stack trace when it starts, keeps its log messages in memory, and writes no log files.
// Implements what the editor calls: rotating log files, written synchronously so that nothing is lost at an exit.
"use strict";

const fs = require("fs");
const path = require("path");

const LEVELS = ["trace", "debug", "info", "warning", "error", "critical"];
const OFF = 6;

class Logger {
  constructor(_type, _name, file, maxBytes, maxFiles) {
    this.file = file;
    this.maxBytes = maxBytes;
    this.maxFiles = maxFiles;
    this.level = 2;
    this.plain = false;
    this.size = 0;
    this.fd = null;
    try {
      fs.mkdirSync(path.dirname(file), {recursive: true});
      this.open();
    } catch {
      // A log that cannot be written must not keep the editor from starting.
    }
  }

  open() {
    this.fd = fs.openSync(this.file, "a");
    this.size = fs.fstatSync(this.fd).size;
  }

  write(level, message) {
    if (level < this.level || this.level >= OFF || this.fd === null) return;
    const stamp = new Date(Date.now() - new Date().getTimezoneOffset() * 60_000).toISOString().replace("T", " ").slice(0, 23);
    const line = Buffer.from(this.plain ? String(message) : `${stamp} [${LEVELS[level]}] ${message}\n`);
    try {
      if (this.size > 0 && this.size + line.length > this.maxBytes) this.rotate();
      fs.writeSync(this.fd, line);
      this.size += line.length;
    } catch {
      // A full disk.
    }
  }

  /** `server.log` becomes `server.1.log`, and so on; the oldest is replaced. */
  rotate() {
    const {dir, name, ext} = path.parse(this.file);
    const numbered = (number) => (number === 0 ? this.file : path.join(dir, `${name}.${number}${ext}`));
    fs.closeSync(this.fd);
    this.fd = null;
    for (let number = this.maxFiles - 1; number > 0; number -= 1) {
      if (fs.existsSync(numbered(number - 1))) fs.renameSync(numbered(number - 1), numbered(number));
    }
    this.open();
  }

  trace(message) { this.write(0, message); }
  debug(message) { this.write(1, message); }
  info(message) { this.write(2, message); }
  warn(message) { this.write(3, message); }
  error(message) { this.write(4, message); }
  critical(message) { this.write(5, message); }
  getLevel() { return this.level; }
  setLevel(level) { this.level = level; }
  setPattern() { this.plain = false; }
  clearFormatters() { this.plain = true; }
  flush() {}

  drop() {
    if (this.fd !== null) fs.closeSync(this.fd);
    this.fd = null;
  }
}

const create = async (name, file, maxBytes, maxFiles) => new Logger("rotating", name, file, maxBytes, maxFiles);

exports.version = 0;
exports.setLevel = () => {};
exports.setFlushOn = () => {};
exports.Logger = Logger;
exports.createRotatingLogger = create;
exports.createAsyncRotatingLogger = create;
