// Texts: pure functions of a workspace, the clock and the installation's settings.

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

export function bytes(count) {
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const shown = unit === 0 ? value : value.toFixed(value >= 100 ? 0 : 1);
  return `${shown} ${UNITS[unit]}`;
}

/** "1.2 GB of 20.0 GB on disk", "archive of 300 MB"; empty while nothing is known or nothing is in it. */
export function diskWords(workspace) {
  if (workspace.status === "CREATED") return "";
  if (workspace.phase === "ARCHIVED") return workspace.archive_bytes === null ? "" : `archive of ${bytes(workspace.archive_bytes)}`;
  if (workspace.disk_bytes === null) return "";
  const limit = workspace.disk_limit_bytes === null ? "" : ` of ${bytes(workspace.disk_limit_bytes)}`;
  return `${bytes(workspace.disk_bytes)}${limit} on disk`;
}

/** "Starts Monday 23 Nov 08:53 Europe/Berlin"; empty if nothing is scheduled, or when the time has passed. */
export const scheduleWords = (workspace, now) => (workspace.scheduled && Date.parse(workspace.scheduled.at) > now ? workspace.scheduled.text : "");

/** A message of the API as a sentence on a line of its own. */
export const sentence = (message) => message.charAt(0).toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");

export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function ago(timestamp, now) {
  if (!timestamp) return "never";
  const seconds = (now - Date.parse(timestamp)) / 1000;
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, {year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit"});
export const clock = (timestamp) => (timestamp ? CLOCK.format(new Date(timestamp)) : "–");

const HOUR = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit"});
export const timeOfDay = (timestamp) => HOUR.format(new Date(timestamp));

const TIME = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const DAY = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit"});

/** For lists of events: today with seconds, earlier days with the date. */
export function moment(timestamp, now) {
  const at = new Date(timestamp);
  return (at.toDateString() === new Date(now).toDateString() ? TIME : DAY).format(at);
}

/** "Firefox on Linux" from a user agent; its beginning if it is unknown. */
export function browserWords(userAgent) {
  if (!userAgent) return "–";
  const find = (table) => table.find(([pattern]) => pattern.test(userAgent))?.[1];
  const browser = find([[/Edg\//, "Edge"], [/Firefox\//, "Firefox"], [/Chrome\/|Chromium\//, "Chrome"], [/Safari\//, "Safari"], [/codehub/i, "codehub command"]]);
  const system = find([[/iPhone|iPad/, "iOS"], [/Android/, "Android"], [/Windows/, "Windows"], [/Mac OS X/, "macOS"], [/Linux|X11/, "Linux"]]);
  return browser ? [browser, system].filter(Boolean).join(" on ") : userAgent.slice(0, 40);
}

/** Texts for observations; an unknown reason is shown unchanged. */
const REASONS = {
  Ready: "complete",
  Incomplete: "incomplete",
  NotFound: "not found",
  ArchiveUploaded: "stored and verified",
  NoArchive: "none yet",
  Running: "running and healthy",
  NotHealthy: "running but not answering",
  Stopped: "stopped",
  AllConditionsMet: "no problems",
  ContainerWithoutVolume: "running without its home",
  DataLost: "its home is missing",
  NotObserved: "not observed yet",
};

export const conditionWords = (observed) =>
  [observed?.reason ? (REASONS[observed.reason] ?? observed.reason) : "not observed yet", observed?.message].filter(Boolean).join(": ");

/** The progress in percent, if a bar can show it. */
export function percent(progress) {
  // A single step is either not started or done, which a bar cannot show.
  if (progress?.percent == null || (progress.unit === "steps" && progress.total < 2)) return null;
  return progress.percent;
}

/** The next automatic change, sleep or archive, and in how many seconds; null if there is none. */
export function nextRest(workspace, now) {
  const at = workspace.sleeps_at ?? workspace.archives_at;
  if (!at) return null;
  return {what: workspace.sleeps_at ? "sleeps" : "is archived", seconds: (Date.parse(at) - now) / 1000};
}

function restWords(rest) {
  if (!rest) return "";
  if (rest.seconds > 60) return `${rest.what} in ${duration(rest.seconds)} unless used`;
  return `${rest.what} soon unless used`;
}

/** Why a running workspace stays awake although it is unused. */
export function awakeWords(workspace, now) {
  if (workspace.phase !== "RUNNING") return "";
  if (workspace.keep_awake_until && Date.parse(workspace.keep_awake_until) > now) return `Kept awake until ${clock(workspace.keep_awake_until)}`;
  return workspace.kept_awake_by ? `Kept awake by ${workspace.kept_awake_by}` : "";
}

export const NO_LEADER = "No coordinator leads. Nothing is started, stopped or archived until one does.";

/** One sentence for each coordinator that refuses to lead. */
export function refusalLines(health) {
  return (health.refuses_to_lead ?? []).map(({node_id, reason}) => `${node_id} refuses to lead: ${reason}.`);
}

const BUSY = ["PROVISIONING", "STOPPING", "DELETING"];

function tone(workspace) {
  if (workspace.status === "ERROR") return "bad";
  if (workspace.operation !== "NONE" || BUSY.includes(workspace.status)) return "busy";
  return workspace.status === "RUNNING" ? "good" : "calm";
}

/** {label, tone, line}: the server's texts, and those that depend on the local clock. */
export function describe(workspace, now) {
  const {label, text} = workspace.summary;
  const used = workspace.phase === "ARCHIVED" && workspace.last_access_at ? `last used ${ago(workspace.last_access_at, now)}` : "";
  return {label, tone: tone(workspace), line: text || awakeWords(workspace, now) || restWords(nextRest(workspace, now)) || used};
}
