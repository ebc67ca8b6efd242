"""`codehub up` with CODEHUB_RUNTIME=kubernetes on the real node, archives in a real S3 store, used through the proxy."""

from __future__ import annotations

import json

import httpx
import pytest

from testing.codehub.kubernetes import Node
from testing.codehub.kubernetes_stack import Beside

pytestmark = [pytest.mark.needs("kubernetes", "root"), pytest.mark.timeout(900)]


def test_a_file_survives_sleep_archive_and_restore(node: Node, beside: Beside) -> None:
    walk = beside.walk
    with walk.signed_in() as client:
        workspace_id = walk.create(client, "tiny")
        walk.reach(client, workspace_id, "RUNNING")
        said = walk.page(
            client, workspace_id, "/run", "POST", "umask 027; echo 'written inside' > ~/note; id -u; pwd"
        )
        assert said.split() == ["1000", "/home/coder"]
        walk.ask(client, workspace_id, "stop", "STANDBY")
        assert beside.objects(node, workspace_id)["Pod"] == []
        walk.ask(client, workspace_id, "start", "RUNNING")
        assert walk.page(client, workspace_id, "/run", "POST", "cat ~/note") == "written inside\n"
        walk.ask(client, workspace_id, "archive", "ARCHIVED")
        left = beside.objects(node, workspace_id)
        assert left == {"Pod": [], "PersistentVolumeClaim": [], "Job": []}, left
        assert len([key for key in walk.archives() if key.startswith(f"{workspace_id}/")]) == 1
        walk.ask(client, workspace_id, "start", "RUNNING")
        shown = walk.page(client, workspace_id, "/run", "POST", "cat ~/note; ls -ln ~/note").split()
        assert shown[:5] == ["written", "inside", "-rw-r-----", "1", "1000"]
        left = beside.objects(node, workspace_id)
        assert (len(left["Pod"]), len(left["PersistentVolumeClaim"]), left["Job"]) == (1, 1, [])


def test_a_missing_image_is_an_error_in_the_kubelets_words(node: Node, beside: Beside) -> None:
    walk = beside.walk
    with walk.signed_in() as client:
        workspace_id = walk.create(client, "missing")

        def failed() -> bool:
            return bool(client.get(f"/api/v1/workspaces/{workspace_id}").json()["phase"] == "ERROR")

        walk.stack.wait(failed)
        seen = client.get(f"/api/v1/workspaces/{workspace_id}").json()
        assert seen["error_reason"] == "ImagePullFailed"
        events = client.get(f"/api/v1/workspaces/{workspace_id}/events").text
        assert "ErrImagePull" in events or "ImagePullBackOff" in events
        assert beside.objects(node, workspace_id)["Pod"] == []


def test_exec_files_terminals_and_ports_work_in_a_pod(node: Node, beside: Beside) -> None:
    walk = beside.walk
    with walk.signed_in() as client:
        workspace_id = walk.create(client, "tiny")
        walk.reach(client, workspace_id, "RUNNING")
        api = f"/api/v1/workspaces/{workspace_id}"

        def run(command: str) -> str:
            answer = client.post(f"{api}/exec", json={"command": command})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["stdout"])

        assert run("id -u; pwd; hostname").split()[:2] == ["1000", "/home/coder"]
        # In the workspace's own container: the IDE's files, processes and limits.
        assert run("grep -l tiny.py /proc/[0-9]*/cmdline; true"), "the IDE is among its processes"
        assert run("grep -l CODEHUB_WORKSPACED= /proc/[0-9]*/environ 2>/dev/null; true") == ""
        assert client.put(f"{api}/files/note", content=b"by the API").status_code < 300
        assert walk.page(client, workspace_id, "/run", "POST", "cat ~/note") == "by the API"
        terminal = client.post(f"{api}/terminals", json={"cols": 80, "rows": 24})
        assert terminal.status_code == 201, terminal.text
        assert len(client.get(f"{api}/terminals").json()["items"]) == 1
        serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=9000, bind='127.0.0.1')"
        started = client.post(f"{api}/processes", json={"command": ["python3", "-c", serve]})
        assert started.status_code == 201, started.text

        def listens() -> bool:
            return 9000 in [port["port"] for port in client.get(f"{api}/ports").json()["items"]]

        walk.stack.wait(listens)
        ports = [port["port"] for port in client.get(f"{api}/ports").json()["items"]]
        assert ports == [9000], "neither the IDE's nor the helper's own"
        assert walk.page(client, workspace_id, "/port/9000/note") == "by the API"
        # Who has not the secret of this start is refused, by the helper itself.
        (name,) = beside.objects(node, workspace_id)["Pod"]
        pod = json.loads(node.kubectl("get", "pod", name, "-n", beside.namespace, "-o", "json"))
        with httpx.Client(trust_env=False) as stranger:
            url = f"http://{pod['status']['podIP']}:7071/hello"
            assert stranger.get(url).status_code == 401
            assert stranger.get(url, headers={"Authorization": "Bearer guessed"}).status_code == 401


def test_several_users_have_workspaces_of_their_own(beside: Beside) -> None:
    walk = beside.walk
    with walk.signed_in() as admin:
        mine = walk.create(admin, "tiny")
        # Users are made with a password, not with a token.
        with walk.stack.client() as browser:
            made = browser.post("/api/v1/users", json={"username": "bob", "password": "bob-bob-bob-bob"})
        assert made.status_code == 201, made.text
        with walk.stack.client("bob", "bob-bob-bob-bob") as bob:
            token = bob.post("/api/v1/tokens", json={"name": "walk"}).json()["token"]
            bob.headers["Authorization"] = f"Bearer {token}"
            his = walk.create(bob, "tiny")
            for client, workspace_id, text in ((admin, mine, "mine"), (bob, his, "his")):
                walk.reach(client, workspace_id, "RUNNING")
                walk.page(client, workspace_id, "/run", "POST", f"echo {text} > ~/note")
            assert walk.page(admin, mine, "/run", "POST", "cat ~/note") == "mine\n"
            assert walk.page(bob, his, "/run", "POST", "cat ~/note") == "his\n"
            assert bob.get(f"/api/v1/workspaces/{mine}").status_code == 403
            with pytest.raises(AssertionError):
                walk.page(bob, mine, "/run", "POST", "cat ~/note")
