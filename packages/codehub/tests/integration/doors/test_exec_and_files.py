"""Commands and files through the API of a real CodeHub, in a real workspace."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import time
from collections.abc import Iterator

import httpx
import pytest

from testing.codehub.doors import Doors


def test_exec_answers_with_exit_code_and_both_streams(doors: Doors) -> None:
    with doors.client() as client:
        result = client.post(doors.api + "/exec", json={"command": "echo out; echo err >&2; exit 3"}).json()
    assert (result["exit_code"], result["stdout"], result["stderr"]) == (3, "out\n", "err\n")
    assert not result["truncated"]


def test_exec_takes_words_environment_folder_and_input(doors: Doors) -> None:
    with doors.client() as client:
        client.put(doors.api + "/files/sub/here.txt", content=b"x")
        body = {
            "command": ["sh", "-c", "echo $NAME; pwd; cat"],
            "cwd": "sub",
            "env": {"NAME": "a b"},
            "stdin": "typed",
        }
        lines = client.post(doors.api + "/exec", json=body).json()["stdout"].splitlines()
    assert lines[0] == "a b"
    assert lines[1].endswith("/sub")
    assert lines[2] == "typed"
    assert doors.sh("find ~/.local/state/codehub -name stdin") == "", "input may be a secret, and homes are archived"


def test_exec_runs_as_the_workspace_and_sees_no_secret_of_ours(doors: Doors) -> None:
    said = doors.sh("id -un; env")
    assert said.startswith("coder\n")
    assert "CODEHUB_WORKSPACED" not in said
    assert "DATABASE" not in said


def test_a_hundred_megabytes_of_output_are_bounded_and_kept_in_a_file(doors: Doors) -> None:
    command = "head -c 100000000 /dev/zero | tr '\\0' x; echo end"
    with doors.client() as client:
        result = client.post(doors.api + "/exec", json={"command": command}).json()
        assert result["truncated"]
        assert len(result["stdout"]) < 200_000
        assert result["stdout"].endswith("end\n")
        listed = client.get(doors.api + "/processes").json()["items"]
        (log,) = [item["log"] for item in listed if item["id"] == result["process_id"]]
        assert doors.sh(f"stat -c %s {log}").strip() == "100000004"
        doors.sh(f"truncate -s 0 {log}")


def test_exec_streams_as_lines_of_json(doors: Doors) -> None:
    body = {"command": "echo one; echo two >&2; exit 4"}
    with (
        doors.client() as client,
        client.stream("POST", doors.api + "/exec", json=body, headers={"Accept": "application/x-ndjson"}) as answer,
    ):
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert {"stream": "stdout", "data": "one\n"} in lines
    assert {"stream": "stderr", "data": "two\n"} in lines
    assert lines[-1]["exit_code"] == 4


def test_a_command_outlives_its_caller_and_is_found_again(doors: Doors) -> None:
    with doors.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post(doors.api + "/exec", json={"command": "sleep 1.5; echo done"}, timeout=0.7)
        (found,) = [
            item for item in client.get(doors.api + "/processes").json()["items"] if "echo done" in item["command"]
        ]
        output = client.get(f"{doors.api}/processes/{found['id']}/output", params={"follow": True})
        assert output.text == "done\n"
        assert client.get(f"{doors.api}/processes/{found['id']}").json()["exit_code"] == 0


def test_a_command_ends_with_its_caller_when_that_was_asked_for(doors: Doors) -> None:
    body = {"command": "sleep 600 # ends", "kill_on_disconnect": True}
    with doors.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post(doors.api + "/exec", json=body, timeout=1)
        deadline = time.monotonic() + 60
        while True:
            (found,) = [p for p in client.get(doors.api + "/processes").json()["items"] if "# ends" in p["command"]]
            if found["state"] == "exited":
                break
            assert time.monotonic() < deadline, found


def test_a_process_is_started_once_and_its_output_resumed_without_a_gap(doors: Doors) -> None:
    with doors.client() as client:
        made = client.post(doors.api + "/processes", json={"command": "echo 1; echo 2 >&2; exec sleep 600"})
        assert made.status_code == 201
        one = f"{doors.api}/processes/{made.json()['id']}"
        deadline = time.monotonic() + 60
        while (text := client.get(one + "/output").text) != "1\n2\n":
            assert time.monotonic() < deadline, text
        assert client.get(one + "/output", params={"after": 2}).text == "2\n"
        assert client.get(one).json()["state"] == "running"
        assert client.post(one + "/signal", json={"signal": "KILL"}).status_code == 204
        assert client.get(one + "/output", params={"after": 4, "follow": True}).text == ""
        assert client.get(one).json()["exit_code"] == 137


def test_a_large_folder_is_listed_in_parts(doors: Doors) -> None:
    make = "import os; os.mkdir('large'); [os.mknod(b'large/%05d-\\xe9' % n) for n in range(10_250)]"
    doors.sh(f'python3 -c "{make}"')
    seen: list[str] = []
    with doors.client() as client:
        after = ""
        for truncated in (True, False):
            part = client.get(doors.api + "/files/large", params={"list": 1, "after": after}).json()
            assert part["truncated"] is truncated
            seen += [item["encoded_path"] for item in part["items"]]
            after = part.get("next", "")
        assert seen == [f"{number:05d}-%E9" for number in range(10_250)]
        deep = client.get(doors.api + "/files/large", params={"list": 1, "after": "x", "depth": 2})
        assert deep.status_code == 400, deep.text
        client.delete(doors.api + "/files/large", params={"recursive": 1})


def test_files_are_written_read_in_parts_edited_and_removed(doors: Doors) -> None:
    at = doors.api + "/files/notes/käse 1.txt"
    with doors.client() as client:
        assert client.put(at, content=b"hello world").status_code == 201
        assert client.get(at).content == b"hello world"
        part = client.get(at, headers={"Range": "bytes=6-"})
        assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"world", "bytes 6-10/11")
        edit = {"path": "notes/käse 1.txt", "old": "world", "new": "moon"}
        assert client.post(doors.api + "/files:edit", json=edit).json() == {"path": "notes/käse 1.txt", "count": 1}
        again = client.post(doors.api + "/files:edit", json=edit)
        assert again.status_code == 409
        assert "0 times" in again.json()["error"]["message"]
        listed = client.get(doors.api + "/files/notes", params={"list": 1}).json()["items"]
        assert [(item["path"], item["type"], item["size"]) for item in listed] == [("käse 1.txt", "file", 10)]
        assert client.delete(at).status_code == 204
        assert client.get(at).status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("%2e%2e/%2e%2e/etc/passwd", 403),
        ("..%2f..%2fetc/passwd", 403),
        ("/etc/passwd", 403),
        ("out/passwd", 403),
        ("out-relative/passwd", 403),
        ("nothing/there", 404),
        ("loop", 400),
    ],
)
def test_a_path_outside_the_home_is_refused(doors: Doors, path: str, status: int) -> None:
    doors.sh("ln -sfn /etc out; ln -sfn ../../../../../../../../etc out-relative; ln -sfn loop loop")
    request = httpx.Request(
        "GET", httpx.URL(doors.stack.url).copy_with(raw_path=f"{doors.api}/files/{path}".encode())
    )
    request.headers["Authorization"] = f"Bearer {doors.token}"
    with doors.client() as client:
        answer = client.send(request)
    assert answer.status_code == status, answer.text
    assert "root:" not in answer.text


def test_an_upload_that_is_refused_early_says_why(doors: Doors) -> None:
    def much() -> Iterator[bytes]:
        for _ in range(256):
            yield b"no tar" * 40_000

    doors.sh("mkdir -p refused/folder")
    with doors.client() as client:
        file = client.put(doors.api + "/files/refused/folder", content=much())
        tar = client.put(
            doors.api + "/files/refused/new", content=much(), headers={"Content-Type": "application/x-tar"}
        )
    assert (file.status_code, file.json()["error"]["message"]) == (409, "refused/folder is a folder")
    assert tar.status_code == 400
    assert doors.sh("ls -A refused").split() == ["folder"]


def test_an_upload_that_is_cut_leaves_the_old_file(doors: Doors) -> None:
    def cut() -> object:
        yield b"new" * 100_000
        raise RuntimeError("the laptop was closed")

    with doors.client() as client:
        client.put(doors.api + "/files/kept/file.bin", content=b"old")
        with pytest.raises(RuntimeError):
            client.put(doors.api + "/files/kept/file.bin", content=cut())  # type: ignore[arg-type]
        deadline = time.monotonic() + 60
        while (left := doors.sh("ls -A kept").split()) != ["file.bin"]:
            assert time.monotonic() < deadline, left
        assert client.get(doors.api + "/files/kept/file.bin").content == b"old"


def test_an_upload_leaves_nothing_if_workspaced_is_killed_meanwhile(doors: Doors) -> None:
    killed = doors.helper()

    def cut() -> Iterator[bytes]:
        yield b"new" * 100_000
        deadline = time.monotonic() + 60
        while "/cut/" not in doors.sh(f"ls -l /proc/{killed}/fd"):  # it is being written
            assert time.monotonic() < deadline
        doors.kill_helper(killed)
        yield b"new" * 100_000

    with doors.client() as client:
        client.put(doors.api + "/files/cut/file.bin", content=b"old")
        with contextlib.suppress(httpx.TransportError):  # refused, or the connection broke
            assert client.put(doors.api + "/files/cut/file.bin", content=cut()).status_code == 502
        client.get(doors.api + "/processes").raise_for_status()  # waits until it is back
    assert doors.sh("ls -A cut; cat cut/file.bin") == "file.bin\nold"


def test_ten_thousand_files_go_up_and_down_as_tar(doors: Doors) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number in range(10_000):
            info = tarfile.TarInfo(f"tree/{number % 100:02}/{number}.txt")
            info.size = 5
            info.mode = 0o755 if number % 2 else 0o644
            archive.addfile(info, io.BytesIO(b"%05d" % number))
    tar = {"Content-Type": "application/x-tar"}
    with doors.client() as client:
        answer = client.put(doors.api + "/files/many", content=made.getvalue(), headers=tar)
        assert answer.json() == {"entries": 10_000}, answer.text
        back = client.get(doors.api + "/files/many")
        assert back.headers["content-type"] == "application/x-tar"
        with tarfile.open(fileobj=io.BytesIO(back.content)) as archive:
            files = {member.name: member for member in archive if member.isfile()}
            assert len(files) == 10_000
            assert files["tree/01/4201.txt"].mode == 0o755
            found = archive.extractfile(files["tree/01/4201.txt"])
            assert found is not None
            assert found.read() == b"04201"
        assert client.delete(doors.api + "/files/many", params={"recursive": True}).status_code == 204


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside"])
def test_a_tar_that_leads_out_of_its_folder_is_refused_as_a_whole(doors: Doors, name: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for each in ("fine", name):
            archive.addfile(tarfile.TarInfo(each), io.BytesIO(b""))
    with doors.client() as client:
        answer = client.put(
            doors.api + "/files/hostile", content=made.getvalue(), headers={"Content-Type": "application/x-tar"}
        )
    assert answer.status_code == 400, answer.text
    assert "leads out" in answer.json()["error"]["message"]
    assert "hostile" not in doors.sh("ls -A").split()


def test_a_truncated_tar_leaves_nothing(doors: Doors) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        info = tarfile.TarInfo("big")
        info.size = 100_000
        archive.addfile(info, io.BytesIO(b"x" * 100_000))
    with doors.client() as client:
        answer = client.put(
            doors.api + "/files/half", content=made.getvalue()[:50_000], headers={"Content-Type": "application/x-tar"}
        )
    assert answer.status_code == 400, answer.text
    assert "half" not in doors.sh("ls -A").split()


def test_a_sleeping_workspace_is_woken_unless_told_otherwise(doors: Doors) -> None:
    doors.sleep()
    with doors.client() as client:
        refused = client.post(doors.api + "/exec", params={"wake": 0}, json={"command": "true"})
        assert refused.status_code == 409, refused.text
        assert client.get(doors.api + "/processes/0011223344556677").status_code == 409
        assert client.get(doors.api).json()["phase"] == "STANDBY"
        assert client.post(doors.api + "/exec", json={"command": "echo up"}).json()["stdout"] == "up\n"


def test_bad_input_is_refused_with_a_reason(doors: Doors) -> None:
    with doors.client() as client:
        assert client.post(doors.api + "/exec", json={"command": ["no-such-program"]}).status_code == 400
        assert client.post(doors.api + "/exec", json={"command": ""}).status_code == 400
        assert client.post(doors.api + "/exec", json={"command": "true", "cwd": "nowhere"}).status_code == 400
        missing = doors.api.replace(doors.workspace_id, "01980000-0000-7000-8000-0000000000ff")
        assert client.post(missing + "/exec", json={"command": "true"}).status_code == 404
    with doors.client("cht_wrong") as client:
        assert client.post(doors.api + "/exec", json={"command": "true"}).status_code == 401


def test_a_token_limited_to_one_workspace_opens_only_that(doors: Doors) -> None:
    with doors.stack.client() as admin:
        other = admin.post("/api/v1/workspaces", json={"name": "other", "start": False}).json()["id"]
        limited = admin.post("/api/v1/tokens", json={"name": "agent", "workspace_id": doors.workspace_id}).json()
        assert limited["workspace_id"] == doors.workspace_id
        missing = admin.post("/api/v1/tokens", json={"name": "agent", "workspace_id": "nothing"})
        assert missing.status_code == 404
    with doors.client(limited["token"]) as client:
        assert client.post(doors.api + "/exec", json={"command": "true"}).status_code == 200
        assert client.get(f"/api/v1/workspaces/{other}").status_code == 403
        assert client.get("/api/v1/workspaces").status_code == 403
        assert client.post("/api/v1/workspaces", json={"name": "more"}).status_code == 403
        assert client.get("/api/v1/users").status_code == 403
    proxy = doors.stack.value("CODEHUB_WORKSPACE_BASE_URL")
    headers = {"Authorization": f"Bearer {limited['token']}"}
    with httpx.Client(trust_env=False, headers=headers, timeout=60) as client:
        own = proxy.replace("localhost", "127.0.0.1")
        assert client.get(f"{own}/w/{doors.workspace_id}/healthz").status_code == 200
        assert client.get(f"{own}/w/{other}/").status_code == 401


def test_processes_outlive_a_killed_workspaced_which_comes_back(doors: Doors) -> None:
    with doors.client() as client:
        made = client.post(doors.api + "/processes", json={"command": "sleep 3; echo survived"}).json()
        doors.kill_helper(doors.helper())
        # Whoever asks while the helper restarts waits for it.
        output = client.get(f"{doors.api}/processes/{made['id']}/output", params={"follow": True})
        assert output.status_code == 200, output.text
        assert output.text == "survived\n"
        assert client.get(f"{doors.api}/processes/{made['id']}").json()["exit_code"] == 0
