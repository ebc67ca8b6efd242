// Recovery from lost or corrupted data, for admins: restore a kept archive, or start with an empty home.

import {get, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import {bytes, clock} from "../words.js";

/** Returns the updated workspace, or null. */
export async function recover(workspace) {
  const archives = (await get(`workspaces/${workspace.id}/archives`)).items;
  // These two need a choice, because there is no usable home.
  const lost = ["DataLost", "ArchiveCorrupted"].includes(workspace.error_reason);
  const choice = el(
    "select",
    {name: "archive_key"},
    lost ? null : el("option", {value: "keep"}, "Keep its home and try again"),
    archives.map((archive) => el("option", {value: archive.archive_key}, `Archive of ${clock(archive.committed_at)}, ${bytes(archive.bytes)}`)),
    lost ? el("option", {value: ""}, "An empty home (its files are not restored)") : null,
  );
  return formDialog({
    title: `Recover ${workspace.name}`,
    body: el("div", {}, field("Restore", choice, archives.length ? "Changes made after an archive are not in it." : "It has no archives.")),
    yes: "Recover",
    danger: lost,
    submit: (data) => {
      const key = data.get("archive_key");
      return post(`workspaces/${workspace.id}:recover`, key === "keep" ? {} : {archive_key: key || null});
    },
  });
}
