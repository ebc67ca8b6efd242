// Facts into words: pure functions of a workspace, the clock and what this installation is like.

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

const TIME = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const DAY = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit"});

/** For a list of what happened: today by the second, earlier by the day. */
export function moment(timestamp, now) {
  const at = new Date(timestamp);
  return (at.toDateString() === new Date(now).toDateString() ? TIME : DAY).format(at);
}

/** "Firefox on Linux" out of what a browser says of itself; the beginning of it when it is none of these. */
export function browserWords(userAgent) {
  if (!userAgent) return "–";
  const find = (table) => table.find(([pattern]) => pattern.test(userAgent))?.[1];
  const browser = find([[/Edg\//, "Edge"], [/Firefox\//, "Firefox"], [/Chrome\/|Chromium\//, "Chrome"], [/Safari\//, "Safari"], [/codehub/i, "codehub command"]]);
  const system = find([[/iPhone|iPad/, "iOS"], [/Android/, "Android"], [/Windows/, "Windows"], [/Mac OS X/, "macOS"], [/Linux|X11/, "Linux"]]);
  return browser ? [browser, system].filter(Boolean).join(" on ") : userAgent.slice(0, 40);
}

// A word for the badge, and what is being done as long as nothing is known of how far it is.
const OPERATIONS = {
  PROVISIONING: ["Preparing", "making its home"],
  CREATE_EMPTY_ARCHIVE: ["Preparing", "making an empty archive"],
  RESTORING: ["Restoring", "reading its archive"],
  STARTING: ["Starting", "waiting for the IDE to answer"],
  STOPPING: ["Stopping", "ending what runs in it"],
  ARCHIVING: ["Archiving", "looking at its files"],
  DELETING: ["Deleting", "taking away what is left"],
};

// The backends' names of steps. The badge says "Archiving" and "Restoring" already.
const STEPS = {archive: "", restore: "", start: "", pull: "pulling its image", verify: "reading back what was written"};

function stepWords(step) {
  if (!step) return "";
  const [, what, part] = /^install ([\w-]+)(?:: (.+))?$/.exec(step) ?? [];
  if (what) return part && part !== what ? `installing ${what} (${part})` : `installing ${what}`;
  return STEPS[step] ?? step;
}

const PHASES = {PENDING: "New", ARCHIVED: "Archived", STANDBY: "Asleep", RUNNING: "Running", ERROR: "Error"};

/** What was observed, in words; a reason that is not here is shown as it is. */
const REASONS = {
  Ready: "on the disk, whole",
  Incomplete: "being made, or left half made",
  NotFound: "not there",
  ArchiveUploaded: "stored and verified",
  NoArchive: "none yet",
  Running: "runs and answers",
  NotHealthy: "runs but does not answer",
  Stopped: "stopped",
  AllConditionsMet: "nothing contradicts",
  ContainerWithoutVolume: "it runs without its home",
  DataLost: "its home is not where it was left",
  NotObserved: "not looked at yet",
};

export const conditionWords = (observed) =>
  [observed?.reason ? (REASONS[observed.reason] ?? observed.reason) : "not looked at yet", observed?.message].filter(Boolean).join(": ");

/** What went wrong, what to do about it, and what an admin can do about it where that is something else. */
const ERRORS = {
  Timeout: ["It took too long without any progress.", "Start it again; if it happens again, look at its logs."],
  DataLost: ["Its home is not where it was left.", "Ask an admin to recover it from a kept archive, or delete it.", "Recover it from a kept archive, or delete it."],
  ArchiveCorrupted: [
    "Its archive does not match its checksum, so it was not unpacked.",
    "Ask an admin to recover it from an older archive, or delete it.",
    "Recover it from an older archive, or delete it.",
  ],
  ImagePullFailed: ["Its image could not be pulled.", "Check the image's name and the registry, then start it again."],
  ContainerWithoutVolume: ["It was running without its home.", "Stop it: the container is taken away first."],
  ActionFailed: ["An action failed.", "The timeline says which; start it again."],
  Unreachable: ["A part of it could not be reached.", "Start it again; if it happens again, look at its timeline."],
  RetryExceeded: ["It failed several times in a row.", "The timeline and the logs say why. Fix the cause, then start it again."],
};

export function errorWords(workspace, isAdmin = false) {
  const [what, todo, adminTodo] = ERRORS[workspace.error_reason] ?? ["Something went wrong.", "The timeline says what. Start it again."];
  return {what, todo: (isAdmin && adminTodo) || todo};
}

export const needsRecovery = (workspace) => ["DataLost", "ArchiveCorrupted"].includes(workspace.error_reason);

/** "62 %, 410 MB of 660 MB", "step 2 of 5"; empty when nothing is known. */
export function progressWords(progress) {
  if (!progress) return "";
  const {done, total, unit} = progress;
  if (unit === "steps") return total > 1 ? `step ${Math.min(done + 1, total)} of ${total}` : "";
  const amount = (count) => (unit === "bytes" || !unit ? bytes(count) : `${count} ${unit}`);
  if (total) return `${Math.min(100, Math.floor((100 * done) / total))} %, ${amount(done)} of ${amount(total)}`;
  return done ? amount(done) : "";
}

export function percent(progress) {
  // One step of one is either not begun or over: nothing a bar could show.
  if (!progress?.total || (progress.unit === "steps" && progress.total < 2)) return null;
  return Math.min(100, (100 * progress.done) / progress.total);
}

/** Seconds until it is put to sleep or archived, and which of them; null when neither is coming. */
export function nextRest(workspace, about, now) {
  if (!about || workspace.operation !== "NONE") return null;
  if (workspace.sleeps_at) {
    return {what: "sleeps", seconds: (Date.parse(workspace.sleeps_at) - now) / 1000};
  }
  if (workspace.phase === "STANDBY" && workspace.desired_state === "STANDBY") {
    const archivedAt = Date.parse(workspace.phase_changed_at) + about.ttl_archive_seconds * 1000;
    return {what: "is archived", seconds: (archivedAt - now) / 1000};
  }
  return null;
}

function restWords(rest) {
  if (!rest) return "";
  if (rest.seconds > 60) return `${rest.what} in ${duration(rest.seconds)} unless used`;
  return `${rest.what} soon unless used`;
}

/** {label, tone, line}: a word for the badge, its colour, and the sentence beside it. */
export function describe(workspace, about, now) {
  const operation = OPERATIONS[workspace.operation];
  if (workspace.status === "ERROR") {
    return {label: "Error", tone: "bad", line: errorWords(workspace).what};
  }
  if (operation) {
    const far = [stepWords(workspace.progress?.step), progressWords(workspace.progress)].filter(Boolean).join(", ");
    return {label: operation[0], tone: "busy", line: far || operation[1]};
  }
  if (workspace.status === "DELETING") return {label: "Deleting", tone: "busy", line: "its files are archived first"};
  if (workspace.status === "PROVISIONING") return {label: "Waiting", tone: "busy", line: "about to start"};
  if (workspace.status === "STOPPING") return {label: "Stopping", tone: "busy", line: "about to stop"};
  const tone = workspace.phase === "RUNNING" ? "good" : "calm";
  const line = awakeWords(workspace, now) || restWords(nextRest(workspace, about, now)) || restingWords(workspace, now);
  return {label: PHASES[workspace.phase] ?? workspace.phase, tone, line};
}

/** Why a running workspace does not go to sleep although nobody is there. */
function awakeWords(workspace, now) {
  if (workspace.phase !== "RUNNING") return "";
  if (workspace.keep_awake_until && Date.parse(workspace.keep_awake_until) > now) return `Kept awake until ${clock(workspace.keep_awake_until)}`;
  return workspace.kept_awake_by ? `Kept awake by ${workspace.kept_awake_by}` : "";
}

function restingWords(workspace, now) {
  if (workspace.status === "CREATED") return "never started";
  if (workspace.phase === "ARCHIVED") return `last used ${ago(workspace.last_access_at, now)}`;
  return "";
}
