// One terminal over its WebSocket: attaches, reconnects at the same position, and acknowledges drawn output.
//
// Messages are binary and start with a type byte; docs/doors.md lists them.

import {sessionKey} from "../session_key.js";

const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 3_000;
const encoder = new TextEncoder();
const decoder = new TextDecoder();
// The server closes with 4000 plus the HTTP status if it rejects the connection: reconnecting would not help.
const REFUSED = 4000;
const ENDED = 1000;
const LONGEST_MESSAGE = 1 << 20; // the server closes the connection after a longer one

function message(kind, payload) {
  const bytes = new Uint8Array(1 + payload.length);
  bytes[0] = kind.charCodeAt(0);
  bytes.set(payload, 1);
  return bytes;
}

function number(value) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes;
}

/**
 * `on` is {screen(cols, rows, bytes, drawn), output(bytes, drawn), resized(cols, rows), connected(), away(),
 * ended(exitCode), refused(status, reason), tooLong()}; call `drawn` when the bytes are on the screen.
 */
export function attach(path, on) {
  let socket = null;
  let next = null; // the number of the next byte; null before the first screen
  let over = false;
  let retryMs = FIRST_RETRY_MS;
  let timer = 0;
  let exitCode = null;

  const send = (kind, payload) => {
    if (payload.length >= LONGEST_MESSAGE) return on.tooLong();
    if (socket?.readyState === WebSocket.OPEN) socket.send(message(kind, payload));
  };
  const acknowledge = (mine, upTo) => () => {
    if (socket === mine) send("A", number(upTo));
  };

  function open() {
    const query = next === null ? "" : `?after=${next}`;
    const mine = new WebSocket(`${location.origin.replace(/^http/, "ws")}/api/v1/${path}/attach${query}`, ["codehub.terminal", `codehub.key.${sessionKey()}`]);
    mine.binaryType = "arraybuffer";
    socket = mine;
    mine.onopen = () => on.connected();
    mine.onmessage = ({data}) => socket === mine && take(mine, new Uint8Array(data));
    mine.onclose = (event) => socket === mine && closed(event);
  }

  function take(mine, bytes) {
    retryMs = FIRST_RETRY_MS;
    const view = new DataView(bytes.buffer);
    switch (String.fromCharCode(bytes[0])) {
      case "S":
        next = Number(view.getBigUint64(1));
        on.screen(view.getUint16(9), view.getUint16(11), bytes.subarray(13), acknowledge(mine, next));
        break;
      case "O":
        next = Number(view.getBigUint64(1)) + bytes.length - 9;
        on.output(bytes.subarray(9), acknowledge(mine, next));
        break;
      case "R": {
        const {cols, rows} = JSON.parse(decoder.decode(bytes.subarray(1)));
        on.resized(cols, rows);
        break;
      }
      case "X":
        exitCode = JSON.parse(decoder.decode(bytes.subarray(1))).exit_code;
        break;
    }
  }

  function closed({code, reason}) {
    socket = null;
    if (over) return;
    if (code === ENDED) {
      over = true;
      on.ended(exitCode);
    } else if (code >= REFUSED + 400 && code < REFUSED + 500 && code !== REFUSED + 429) {
      over = true;
      on.refused(code - REFUSED, reason);
    } else {
      on.away();
      timer = setTimeout(open, retryMs);
      retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS);
    }
  }

  function now() {
    if (!over && !socket) {
      clearTimeout(timer);
      open();
    }
  }
  addEventListener("online", now);
  open();
  return {
    type: (text) => send("I", encoder.encode(text)),
    typeBytes: (text) => send("I", Uint8Array.from(text, (char) => char.charCodeAt(0))),
    resize: (cols, rows) => send("R", encoder.encode(JSON.stringify({cols, rows}))),
    close() {
      over = true;
      clearTimeout(timer);
      removeEventListener("online", now);
      socket?.close();
    },
  };
}
