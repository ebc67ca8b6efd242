// An admin's answer to lost or corrupted data: which kept archive to go back to, or an empty home, said plainly.

import {get, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import * as store from "../store.js";
import {failed} from "../toasts.js";
import {bytes, clock, needsRecovery} from "../words.js";

export async function recoverDialog(workspace) {
  let archives = [];
  try {
    archives = (await get(`workspaces/${workspace.id}/archives`)).items;
  } catch (error) {
    failed(error, "Archives");
    return;
  }
  const lost = needsRecovery(workspace);
  const choice = el(
    "select",
    {name: "archive_key"},
    lost ? null : el("option", {value: "keep"}, "As it is: judge it anew"),
    archives.map((archive) => el("option", {value: archive.archive_key}, `Archive of ${clock(archive.committed_at)}, ${bytes(archive.bytes)}`)),
    lost ? el("option", {value: ""}, "An empty home (nothing comes back)") : null,
  );
  const recovered = await formDialog({
    title: `Recover ${workspace.name}`,
    body: el("div", {}, field("Go back to", choice, "What was written after that archive is not in it.")),
    yes: "Recover",
    danger: lost,
    submit: (data) => {
      const key = data.get("archive_key");
      return post(`workspaces/${workspace.id}:recover`, key === "keep" ? {} : {archive_key: key || null});
    },
  });
  if (recovered) {
    store.putIfKnown(recovered);
    document.dispatchEvent(new CustomEvent("workspace-answer", {detail: recovered}));
  }
}
