//! The API on an emulation's socket: what may be asked and changed, and by whom.

use std::{
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::{sys::signal::Signal, unistd::Group};
use perturb_tests::bed::INTERFACE;
use serde_json::{Value, json};

use crate::{
    harness::{Setting, Test, each, once, skip},
    metrics::answer,
    update::{PATIENCE, delay, wait},
};

pub(crate) const TESTS: &[Test] = &[
    each("api::changes_pauses_and_resumes", changes),
    each("api::of_private_hosts", of_run),
    once("api::others_reach_nothing", others),
    once("api::many_at_once", many),
];

const PROFILE: &str = "servers: { up: { latency: 40ms } }\nclasses: [{ name: all, egress: [up] }]";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// An answer: its status, its head and its body.
fn ask(socket: &Path, method: &str, path: &str, kind: &str, body: &str) -> Result<(u16, String, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: perturb\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    if length > 0 {
        // A refusal of what the head says must wait for the body, as some clients send it.
        thread::sleep(Duration::from_millis(20));
    }
    stream.write_all(body.as_bytes())?;
    let (head, body) = answer(&mut stream)?;
    let status = head.split(' ').nth(1).context("an answer without status")?;
    Ok((status.parse()?, head, body))
}

/// What an error says.
fn problem(answer: &(u16, String, String), status: u16, word: &str) -> Result<()> {
    let (found, head, body) = answer;
    ensure!(
        *found == status && head.contains("application/problem+json"),
        "{answer:?}"
    );
    let problem: Value = serde_json::from_str(body)?;
    ensure!(
        problem["status"] == status && problem["title"].is_string(),
        "{problem}"
    );
    ensure!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains(word)),
        "{problem}"
    );
    Ok(())
}

/// A knob is turned, the emulation is paused and resumed, and whoever listens is told.
fn changes(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let id = applied.counters()?["id"].clone();
    let socket = PathBuf::from("/run/perturb")
        .join(id.as_str().context("no id")?)
        .join("api");
    let mode = fs::metadata(&socket)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "mode {mode:o}");
    let get = |path| ask(&socket, "GET", path, "", "");
    let patch = |change: &Value| ask(&socket, "PATCH", "/v1/profile", MERGE_PATCH, &change.to_string());
    let mut events = UnixStream::connect(&socket)?;
    events.set_read_timeout(Some(PATIENCE))?;
    write!(events, "GET /v1/events HTTP/1.1\r\nHost: perturb\r\n\r\n")?;
    let mut events = BufReader::new(events).lines();
    let mut heard = |word: &str| -> Result<()> {
        let line = events.find(|line| line.as_ref().map_or(true, |line| line.contains(word)));
        line.with_context(|| format!("the events end without {word}"))??;
        Ok(())
    };
    heard("text/event-stream")?;

    let (status, _, body) = get("/v1/status")?;
    let report: Value = serde_json::from_str(&body)?;
    ensure!(
        status == 200 && report["id"] == id && report["updates"] == 0,
        "{report}"
    );
    ensure!(delay(&bed)? > 30.0, "nothing is emulated");
    let answer = patch(&json!({ "servers": { "up": { "latency": "10ms" } } }))?;
    ensure!(answer.0 == 200 && answer.2.contains("10ms"), "{answer:?}");
    heard("the profile was changed")?;
    let changed = delay(&bed)?;
    ensure!((8.0..30.0).contains(&changed), "{changed} ms");
    let profile = get("/v1/profile")?.2;
    let whole = ask(
        &socket,
        "PUT",
        "/v1/profile",
        "application/yaml",
        &profile.replace("10ms", "40ms"),
    )?;
    ensure!(whole.0 == 200 && delay(&bed)? > 30.0, "{whole:?}");
    ensure!(applied.counters()?["updates"] == 2, "{}", applied.counters()?);

    let wrong = patch(&json!({ "servers": { "up": { "latncy": "10ms" } } }))?;
    problem(&wrong, 422, "latncy")?;
    problem(
        &ask(&socket, "PATCH", "/v1/profile", "text/plain", "{}")?,
        415,
        MERGE_PATCH,
    )?;
    problem(
        &ask(&socket, "PATCH", "/v1/profile", MERGE_PATCH, "{")?,
        400,
        "JSON",
    )?;
    problem(&ask(&socket, "POST", "/v1/status", "", "a body")?, 405, "GET")?;
    let endless = "#".repeat(5 << 20);
    problem(&ask(&socket, "PUT", "/v1/profile", "", &endless)?, 413, "longer")?;
    problem(&get("/nosuch")?, 404, "openapi")?;
    ensure!(
        get("/v1/openapi.json")?.2.contains("\"openapi\""),
        "it is not described"
    );
    ensure!(get("/metrics")?.2.contains("perturb_paused 0"), "no metrics");
    ensure!(delay(&bed)? > 30.0, "a refused change took effect");

    for (path, paused) in [("/v1/pause", true), ("/v1/resume", false)] {
        let answer = ask(&socket, "POST", path, "", "")?;
        ensure!(answer.0 == 204, "{answer:?}");
        heard(if paused { "paused" } else { "resumed" })?;
        wait(path, || Ok((delay(&bed)? < 30.0) == paused))?;
        let report = applied.counters()?;
        ensure!((report["paused"] == true) == paused, "{report}");
        let events = &report["events"];
        ensure!(
            events["paused"].as_u64() > Some(0) && events["lease_expired"] == 0,
            "{events}"
        );
    }
    applied.stop()?;
    ensure!(!socket.exists(), "the socket is left");
    before.must_be_that_of(&bed.left)
}

/// Private hosts have a socket, too, and root may change their network while a command runs.
fn of_run(setting: &Setting) -> Result<()> {
    let mut run = Command::new(&setting.product.path)
        .args(["run", "--pacer", setting.pacer.name()])
        .arg(setting.product.profile(PROFILE)?)
        .args([
            "--",
            "sh",
            "-c",
            "ping -c 3 -i 0.2 -q h2; read line; ping -c 3 -i 0.2 -q h2",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let socket = PathBuf::from(format!("/run/perturb/run-{}/api", run.id()));
    wait("it answers", || Ok(UnixStream::connect(&socket).is_ok()))?;
    let mut said = BufReader::new(run.stdout.take().context("no output")?).lines();
    let mut mean = || -> Result<f64> {
        let found = said.find(|line| line.as_ref().map_or(true, |line| line.starts_with("rtt ")));
        let line = found.context("ping says no round-trip time")??;
        Ok(line.split('/').nth(4).context("no mean")?.parse()?)
    };
    let slow = mean()?;
    let change = json!({ "servers": { "up": { "latency": "1ms" } } }).to_string();
    let answer = ask(&socket, "PATCH", "/v1/profile", MERGE_PATCH, &change);
    let mut input = run.stdin.take().context("no input")?;
    writeln!(input)?;
    let fast = mean()?;
    run.wait()?;
    let answer = answer?;
    ensure!(
        answer.0 == 200 && slow > 35.0 && fast < 30.0,
        "{slow} ms, {fast} ms: {answer:?}"
    );
    Ok(())
}

/// Changes that come together are all in force, and listeners leave room for others.
fn many(setting: &Setting) -> Result<()> {
    const CHANGES: usize = 12;
    const LISTENERS: usize = 32;
    let (bed, before) = setting.bed()?;
    let servers: String = (0..CHANGES)
        .map(|k| format!("s{k}: {{ latency: 1us }}, "))
        .collect();
    let path: String = (0..CHANGES).map(|k| format!("s{k}, ")).collect();
    let profile = format!("servers: {{ {servers} }}\nclasses: [{{ name: all, egress: [{path}] }}]");
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let id = applied.counters()?["id"].clone();
    let socket = PathBuf::from("/run/perturb")
        .join(id.as_str().context("no id")?)
        .join("api");
    let listen = || -> Result<(String, UnixStream)> {
        let mut stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET /v1/events HTTP/1.1\r\nHost: perturb\r\n\r\n")?;
        let mut head = String::new();
        BufReader::new(&stream).read_line(&mut head)?;
        Ok((head, stream))
    };
    let mut listeners = Vec::new();
    for _ in 0..LISTENERS {
        let (head, stream) = listen()?;
        ensure!(head.contains(" 200 "), "{head}");
        listeners.push(stream);
    }
    ensure!(listen()?.0.contains(" 503 "), "one more may listen");
    let change = |k: usize| {
        let change = json!({ "servers": { format!("s{k}"): { "latency": format!("{}us", k + 2) } } });
        ask(&socket, "PATCH", "/v1/profile", MERGE_PATCH, &change.to_string())
    };
    thread::scope(|scope| {
        let asked: Vec<_> = (0..CHANGES).map(|k| scope.spawn(move || change(k))).collect();
        asked.into_iter().try_for_each(|asked| {
            let answer = asked.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            ensure!(answer.0 == 200, "{answer:?}");
            Ok(())
        })
    })?;
    let profile = ask(&socket, "GET", "/v1/profile", "", "")?.2;
    for k in 0..CHANGES {
        ensure!(profile.contains(&format!("{}us", k + 2)), "s{k}: {profile}");
    }
    drop(listeners);
    wait("the gone make room", || Ok(listen()?.0.contains(" 200 ")))?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// Connects as a user of a group, on a thread of its own.
fn connect_as(user: libc::c_long, group: libc::c_long, socket: &Path) -> Result<std::io::Result<UnixStream>> {
    let connect = || -> Result<std::io::Result<UnixStream>> {
        let none: *const libc::gid_t = std::ptr::null();
        // SAFETY: these system calls change this thread alone, which ends here, and read no memory.
        let done = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, 0, none),
                libc::syscall(libc::SYS_setresgid, group, group, group),
                libc::syscall(libc::SYS_setresuid, user, user, user),
            ]
        };
        ensure!(done == [0; 3], "becoming user {user}: {done:?}");
        Ok(UnixStream::connect(socket))
    };
    thread::scope(|scope| scope.spawn(connect).join()).map_err(|_| anyhow::anyhow!("the thread panicked"))?
}

/// What a member sees, keeps and ends by the commands that root has, without the registry.
fn commands_of_a_member(setting: &Setting, group: u32, is_kept: impl Fn() -> Result<bool>) -> Result<()> {
    // The product may lie where only root reads.
    let place = tempfile::tempdir()?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
    let product = place.path().join("perturb");
    setting.product.copy(&product)?;
    let call = |args: &[&str], group: u32, code: i32, stdout: &str, stderr: &str| -> Result<()> {
        let called = Command::new(&product)
            .args(args)
            .uid(65_534)
            .gid(group)
            .output()?;
        let (out, err) = (
            String::from_utf8_lossy(&called.stdout),
            String::from_utf8_lossy(&called.stderr),
        );
        ensure!(
            called.status.code() == Some(code) && out.contains(stdout) && err.contains(stderr),
            "{args:?}: {called:?}"
        );
        Ok(())
    };
    for command in ["status", "confirm", "clear"] {
        call(&[command], 4711, 1, "", "perturb needs root for this")?;
    }
    call(&["status"], group, 0, "not confirmed", "")?;
    call(&["status", "--json"], group, 0, "\"name\": \"up\"", "")?;
    call(&["confirm", "--iface", "other"], group, 0, "", "nothing waits")?;
    ensure!(!is_kept()?, "confirmed for another interface");
    call(
        &["confirm", "--iface", INTERFACE],
        group,
        0,
        "",
        "confirmed what is applied",
    )?;
    ensure!(is_kept()?, "not confirmed");
    call(&["confirm"], group, 0, "", "nothing waits")?;
    call(&["clear", "--iface", "other"], group, 0, "", "nothing to clear")?;
    call(&["clear", "--iface", INTERFACE], group, 0, "", "cleared")?;
    call(&["status"], group, 1, "", "perturb needs root for this")
}

/// A user who is not root reaches nothing, unless in the group that was named.
fn others(setting: &Setting) -> Result<()> {
    const NAME: &str = "nogroup";
    let Some(group) = Group::from_name(NAME)? else {
        return Err(skip("there is no group nogroup"));
    };
    let (user, own, other) = (65_534, i64::from(group.gid.as_raw()), 4711);
    let denied = |socket: &Path, group: i64| -> Result<()> {
        let connected = connect_as(user, group, socket)?;
        let is_denied = connected
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        ensure!(is_denied, "{}: {connected:?}", socket.display());
        Ok(())
    };
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let id = applied.counters()?["id"].as_str().context("no id")?.to_owned();
    denied(&PathBuf::from("/run/perturb").join(&id).join("api"), own)?;
    applied.stop()?;

    let options = ["--socket-group", NAME, "--confirm", "1h"];
    let applied = setting
        .product
        .apply_with(&bed.left, PROFILE, setting.pacer, &options)?;
    let directory = PathBuf::from(format!("/run/perturb-group-{NAME}"));
    let socket = directory.join(&id);
    denied(&socket, other)?;
    connect_as(user, own, &socket)?.context("a member of the group is refused")?;
    commands_of_a_member(setting, group.gid.as_raw(), || {
        Ok(applied.counters()?["confirm_left_ms"].is_null())
    })?;
    let (status, said) = applied.ended()?;
    ensure!(
        status.success() && said.contains("ended over the socket"),
        "{status}: {said}"
    );
    before.must_be_that_of(&bed.left)?;
    ensure!(!directory.exists(), "the directory is left");
    let applied = setting
        .product
        .apply_with(&bed.left, PROFILE, setting.pacer, &options)?;
    applied.signal(Signal::SIGKILL)?;
    applied.ended()?;
    ensure!(directory.exists(), "a killed emulation has left nothing");
    setting.product.clear(&bed.left)?;
    ensure!(!directory.exists(), "what a killed emulation left is there");
    let profile = setting.product.profile(PROFILE)?.display().to_string();
    let called = [
        "apply",
        &profile,
        "--iface",
        "eth0",
        "--socket-group",
        "no-such-group",
    ];
    let called = setting.product.call(&bed.left, &called)?;
    ensure!(
        called.code() == 1 && called.stderr.contains("there is no group no-such-group"),
        "{called:?}"
    );
    Ok(())
}
