"""Who may use the server: addresses, names, origins and keys."""

from pathlib import Path

import pytest

from edgegen.errors import OptionError, UsageError
from edgegen.server.http.options import ServerOptions
from tests.runtime.server.material import OWN, error_of, fake_client

KEYS = ("first-key", "second-key")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.5"])
def test_this_machine_needs_no_key(host: str) -> None:
    assert ServerOptions(host=host).keys == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "raspberrypi"])
def test_other_addresses_need_a_key_or_insecure(host: str) -> None:
    with pytest.raises(UsageError, match="add --insecure to serve everyone"):
        ServerOptions(host=host)
    assert ServerOptions(host=host, insecure=True).host == host
    assert ServerOptions(host=host, keys=KEYS).host == host


@pytest.mark.parametrize("key", ["", "two words", "schlüssel", "a\n"])
def test_keys_are_words(key: str) -> None:
    with pytest.raises(OptionError, match="one word of printable ASCII"):
        ServerOptions(keys=(key,))


def test_keys_are_not_shown() -> None:
    assert "first-key" not in repr(ServerOptions(keys=KEYS))


def test_numbers_are_checked() -> None:
    with pytest.raises(OptionError, match="5 problems"):
        ServerOptions(port=65536, max_queue=-1, max_tokens=0, request_seconds=0, grace_seconds=float("nan"))


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer first-key", 200),
        ("bearer second-key", 200),
        ("Bearer third-key", 401),
        ("Bearer first-key2", 401),
        ("Bearer ", 401),
        ("Basic first-key", 401),
        (None, 401),
    ],
)
def test_any_of_the_keys_is_wanted(tmp_path: Path, header: str | None, status: int) -> None:
    client = fake_client(tmp_path, ServerOptions(keys=KEYS))
    response = client.get("/v1/models", headers={} if header is None else {"Authorization": header})
    assert response.status_code == status
    if status == 401:
        error = error_of(response)
        assert error["code"] == "invalid_api_key"
        assert "first-key" not in error["message"]


def test_health_needs_no_key(tmp_path: Path) -> None:
    assert fake_client(tmp_path, ServerOptions(keys=KEYS)).get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8000", 200),
        ("my-name:8000", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.1.2", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_host_names_are_checked(tmp_path: Path, host: str, status: int) -> None:
    """A page of elsewhere whose name is pointed here (DNS rebinding) gets nothing."""
    client = fake_client(tmp_path, ServerOptions(allowed_hosts=("My-Name",)))
    assert client.get("/health", headers={"Host": host}).status_code == status


def test_a_server_for_others_is_called_by_its_addresses(tmp_path: Path) -> None:
    client = fake_client(tmp_path, ServerOptions(host="0.0.0.0", insecure=True))
    assert client.get("/health", headers={"Host": "192.168.1.2:8000"}).status_code == 200
    assert client.get("/health", headers={"Host": "evil.example:8000"}).status_code == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [(OWN, 200), ("http://evil.example", 403), ("http://127.0.0.1:9000", 403), ("null", 403), ("", 403)],
)
def test_pages_of_other_sites_are_refused(tmp_path: Path, origin: str, status: int) -> None:
    response = fake_client(tmp_path).get("/health", headers={"Origin": origin})
    assert response.status_code == status
    assert not [name for name in response.headers if name.startswith("access-control-")]


APP = "https://app.example"


@pytest.mark.parametrize("allowed", [(APP,), ("http://other.example:5173", APP), ("*",)])
@pytest.mark.parametrize(("path", "status"), [("/v1/models", 200), ("/v1/nothing", 404), ("/v1/models/none", 404)])
def test_pages_of_allowed_sites_read_answers_and_errors(
    tmp_path: Path, allowed: tuple[str, ...], path: str, status: int
) -> None:
    response = fake_client(tmp_path, ServerOptions(allowed_origins=allowed)).get(path, headers={"Origin": APP})
    assert response.status_code == status
    assert response.headers["access-control-allow-origin"] in (APP, "*")
    assert "access-control-allow-credentials" not in response.headers


def test_browsers_ask_before_a_request_without_a_key(tmp_path: Path) -> None:
    client = fake_client(tmp_path, ServerOptions(keys=KEYS, allowed_origins=(APP,)))
    asked = {"Origin": APP, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    response = client.options("/v1/chat/completions", headers=asked)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == APP
    assert "authorization" in response.headers["access-control-allow-headers"]
    assert client.get("/v1/models", headers={"Origin": APP}).status_code == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example", "https://app.example:444", "null"])
def test_pages_of_sites_that_are_not_allowed_are_refused(tmp_path: Path, origin: str) -> None:
    response = fake_client(tmp_path, ServerOptions(allowed_origins=(APP,))).get("/health", headers={"Origin": origin})
    assert response.status_code == 403
    assert error_of(response)["message"] == (
        f"pages of {origin!r} may not use this server: start it with --allow-origin {origin}."
    )
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("app.example", "did you mean 'http://app.example'"),
        ("https://app.example/", "did you mean 'https://app.example'"),
        ("https://App.example:443", "did you mean 'https://app.example'"),
        ("https://app.example/page", "did you mean 'https://app.example'"),
        ("https://*.example", "is not an origin"),
        ("https://me@app.example", "is not an origin"),
        ("https://app.example:port", "is not an origin"),
        ("", "is not an origin"),
    ],
)
def test_origins_are_checked(origin: str, said: str) -> None:
    with pytest.raises(OptionError, match="allowed_origins: ") as caught:
        ServerOptions(allowed_origins=(origin,))
    assert said in str(caught.value)
