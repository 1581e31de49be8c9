//! `perturb trace` on real programs: this file's own (sockets), and MPI's where Open MPI is installed.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    collections::HashMap,
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use perturb_tests::product::executable;
use perturb_verdict::{complete, or_end, root, skipped};
use serde_json::Value;

/// Set in the traced programs, which are tests of this file that otherwise do nothing.
const ROLE: &str = "PERTURB_TRACE_TEST_ROLE";
/// Bytes of a message.
const SIZE: usize = 3000;
/// How long a program waits for another one.
const PATIENCE: Duration = Duration::from_secs(20);

// The traced programs.

/// Sends messages back until there are none.
fn echo(mut stream: TcpStream) {
    let mut message = [0; SIZE];
    while stream.read_exact(&mut message).is_ok() {
        stream.write_all(&message).unwrap();
    }
}

fn ping(port: u16, rounds: u32, pause: Duration) {
    pings(TcpStream::connect(("127.0.0.1", port)).unwrap(), rounds, pause);
}

fn pings(mut stream: TcpStream, rounds: u32, pause: Duration) {
    stream.set_nodelay(true).unwrap();
    let mut message = [7; SIZE];
    for _ in 0..rounds {
        thread::sleep(pause);
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut message).unwrap();
    }
}

/// Another process that pings; it is not traced twice because it has no role but the one in its arguments.
fn client(port: u16, role: &str) -> std::process::Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "traced_program", "--nocapture"])
        .env(ROLE, format!("{role} {port}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A signal handler that uses a socket: it must neither hang nor disturb.
extern "C" fn chatter(_: libc::c_int) {
    let byte = [0_u8];
    // SAFETY: a valid buffer; the descriptor is not open, so that nothing is sent.
    unsafe {
        libc::write(1000, byte.as_ptr().cast(), 1);
        libc::send(1000, byte.as_ptr().cast(), 1, 0);
    }
}

#[test]
fn traced_program() {
    let Ok(role) = env::var(ROLE) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let words: Vec<&str> = role.split(' ').collect();
    let argument = |index: usize| words[index].parse::<u32>().unwrap();
    match words[0] {
        "serve" => {
            // Rounds, and milliseconds between them.
            let mut client = client(port, &format!("ping {} {}", words[1], words[2]));
            echo(listener.accept().unwrap().0);
            assert!(client.wait().unwrap().success());
        }
        "ping" => ping(
            u16::try_from(argument(3)).unwrap(),
            argument(1),
            Duration::from_millis(argument(2).into()),
        ),
        "serve-and-die" => {
            let mut client = client(port, "ping-and-die");
            echo(listener.accept().unwrap().0);
            assert!(!client.wait().unwrap().success());
        }
        "ping-and-die" => {
            ping(u16::try_from(argument(1)).unwrap(), 5, Duration::ZERO);
            nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        "threads" => threads(&listener, port),
        "serve-hosts" => echo(TcpListener::bind("[::]:4900").unwrap().accept().unwrap().0),
        "ping-host" => {
            let start = Instant::now();
            let stream = loop {
                match TcpStream::connect((words[1], 4900)) {
                    Err(_) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
                    connected => break connected.unwrap(),
                }
            };
            pings(stream, argument(2), Duration::ZERO);
        }
        other => panic!("{other}"),
    }
}

/// Four pairs of threads, a timer whose handler makes traced calls, `errno`, and children by fork and exec.
fn threads(listener: &TcpListener, port: u16) {
    // SAFETY: the handler makes system calls only.
    unsafe {
        libc::signal(
            libc::SIGALRM,
            chatter as extern "C" fn(libc::c_int) as libc::sighandler_t,
        );
        let interval = libc::timeval {
            tv_sec: 0,
            tv_usec: 1000,
        };
        let timer = libc::itimerval {
            it_interval: interval,
            it_value: interval,
        };
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ping(port, 200, Duration::ZERO));
            let stream = listener.accept().unwrap().0;
            scope.spawn(move || echo(stream));
        }
    });
    // A call that fails leaves its own error, traced or not.
    let socket = listener.as_raw_fd();
    // SAFETY: a valid buffer.
    let code = unsafe { libc::send(socket, [0_u8].as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((code, error), (-1, Some(libc::EPIPE)));
    for _ in 0..20 {
        assert!(Command::new("true").status().unwrap().success());
    }
}

// The tests.

fn tracing(folder: &Path, options: &[&str], command: &[&str], role: &str) -> Command {
    let mut trace = Command::new(executable());
    trace.arg("trace").arg("--out").arg(folder.join("trace.jsonl"));
    trace.arg("--scenario").arg(folder.join("scenario.yaml"));
    trace.args(options).arg("--").args(command);
    trace.env(ROLE, role).stdin(Stdio::null());
    trace
}

/// Traces this file's own program; the summary.
fn trace_own(folder: &Path, role: &str) -> Value {
    let program = env::current_exe().unwrap();
    let command = [
        program.to_str().unwrap(),
        "--exact",
        "traced_program",
        "--nocapture",
    ];
    let output = finished(&mut tracing(folder, &["--json"], &command, role));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command, which must end within a minute.
fn finished(command: &mut Command) -> Output {
    let mut limited = Command::new("timeout");
    limited
        .arg("60")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap());
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited.stdin(Stdio::null()).output().unwrap()
}

fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("trace.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

fn predict(folder: &Path) -> Value {
    let mut predict = Command::new(executable());
    predict
        .args(["predict", "whatif", "--json"])
        .arg(folder.join("scenario.yaml"));
    let output = finished(&mut predict);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn messages_of_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let summary = trace_own(folder.path(), "serve 50 0");
    let events = events(folder.path());
    assert_eq!(summary["events"], events.len());
    assert_eq!(summary["lost"], 0);
    assert_eq!(summary["outside"], 0);
    assert_eq!((count(&events, "send"), count(&events, "end_recv")), (100, 100));
    assert_eq!(count(&events, "exit"), 2);
    let sends = events.iter().filter(|event| event["type"] == "send");
    for send in sends {
        assert_eq!(send["bytes"], SIZE);
        assert!(send["to"].is_string() && send["to"] != send["process"], "{send}");
    }
    let prediction = predict(folder.path());
    assert_eq!(prediction["messages"]["remote"], 100);
    assert_eq!(prediction["messages"]["in_flight"], 0);
    let cpu: f64 = events.iter().map(|event| event["cpu_us"].as_f64().unwrap()).sum();
    let time = prediction["program_time_us"].as_f64().unwrap();
    // Two processes, in turn but for their beginnings and ends.
    assert!(time > 0.0 && time <= cpu * 1.001, "{time} of {cpu}");
}

#[test]
fn a_program_that_is_killed_leaves_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    trace_own(folder.path(), "serve-and-die");
    let events = events(folder.path());
    assert_eq!((count(&events, "send"), count(&events, "end_recv")), (10, 10));
    assert_eq!(count(&events, "exit"), 2);
    assert_eq!(predict(folder.path())["messages"]["in_flight"], 0);
}

#[test]
fn threads_signals_and_children() {
    let folder = tempfile::tempdir().unwrap();
    trace_own(folder.path(), "threads");
    let events = events(folder.path());
    assert_eq!((count(&events, "send"), count(&events, "end_recv")), (1600, 1600));
    assert_eq!(count(&events, "exit"), 8);
    assert_eq!(predict(folder.path())["messages"]["in_flight"], 0);
}

#[test]
fn the_prediction_runs_while_the_program_does() {
    let folder = tempfile::tempdir().unwrap();
    // Names the processes.
    assert_eq!(trace_own(folder.path(), "serve 2 0")["outside"], 0);
    let socket = folder.path().join("events");
    let program = env::current_exe().unwrap();
    let command = [program.to_str().unwrap(), "--exact", "traced_program"];
    let mut program = tracing(
        folder.path(),
        &["--collect", socket.to_str().unwrap()],
        &command,
        "serve 40 50",
    )
    .stdout(Stdio::null())
    .spawn()
    .unwrap();
    while !socket.exists() {
        assert!(
            program.try_wait().unwrap().is_none(),
            "it ended before it listened"
        );
        thread::sleep(Duration::from_millis(5));
    }
    let mut follower = Command::new(executable())
        .args([
            "predict", "whatif", "--json", "--follow", "--every", "0", "--events",
        ])
        .arg(&socket)
        .arg(folder.path().join("scenario.yaml"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["final"], false);
    assert!(
        program.try_wait().unwrap().is_none(),
        "the program ended before the first prediction"
    );
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert!(follower.wait().unwrap().success() && program.wait().unwrap().success());
    assert_eq!(
        (&last["final"], &last["messages"]["remote"]),
        (&Value::from(true), &Value::from(80))
    );
    assert!(!socket.exists());
}

/// Two machines, which are private hosts here: a server on one, a client on the other, a trace of both on a third.
#[test]
fn one_trace_of_two_machines() {
    const SCRIPT: &str = r#"
        "$PERTURB" trace --merge tcp:[::]:4901 --senders 2 --out "$FOLDER/trace.jsonl" \
            --scenario "$FOLDER/scenario.yaml" --json > "$FOLDER/report" &
        merge=$!
        send() { exec "$PERTURB" on $1 -- env PERTURB_TRACE_TEST_ROLE="$2" "$PERTURB" trace --to tcp:h1:4901 -- \
            "$PROGRAM" --exact traced_program > "$FOLDER/$1"; }
        send h2 serve-hosts &
        server=$!
        (send h3 "ping-host h2 50") || exit 10
        wait $server || exit 11
        wait $merge || exit 12
    "#;
    or_end!(root());
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("lan.yaml");
    fs::write(&profile, "version: 1\nlatency: 1ms\n").unwrap();
    let mut run = Command::new(executable());
    run.args(["run", "--hosts", "3"])
        .arg(&profile)
        .args(["--", "sh", "-c", SCRIPT]);
    run.env("PERTURB", executable()).env("FOLDER", folder.path());
    run.env("PROGRAM", env::current_exe().unwrap());
    let output = finished(&mut run);
    let said = String::from_utf8_lossy(&output.stderr);
    or_end!(complete(&said));
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&fs::read(folder.path().join("report")).unwrap()).unwrap();
    let mut hosts: Vec<&Value> = report["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| &process["host"])
        .collect();
    hosts.sort_by_key(|host| host.as_str());
    assert_eq!(hosts, ["h2", "h3"], "{report}");
    assert_eq!((&report["outside"], &report["lost"]), (&0.into(), &0.into()));
    // What one machine sent is what the other received.
    let trace = events(folder.path());
    let names = |kind: &str| {
        let of_kind = trace.iter().filter(|event| event["type"] == kind);
        let mut names: Vec<u64> = of_kind.map(|event| event["message"].as_u64().unwrap()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("send"), (0..100).collect::<Vec<u64>>());
    assert_eq!(names("send"), names("end_recv"));
    assert_eq!(predict(folder.path())["messages"]["remote"], 100);
}

#[test]
fn the_command_s_exit_code_and_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| {
        let mut command = Command::new(executable());
        let output = finished(command.arg("trace").args(arguments).current_dir(folder.path()));
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (status, message) = code(&["--out", "t", "--", "sh", "-c", "exit 7"]);
    assert_eq!(status, Some(7));
    assert!(message.contains("nothing was traced"), "{message}");
    assert_eq!(code(&["--out", "t", "--", "/no/such/program"]).0, Some(1));
    assert_eq!(code(&["--out", "/no/such/folder/t", "--", "true"]).0, Some(1));
    assert_eq!(code(&["--collect", "tcp:x", "--", "true"]).0, Some(2));
    assert_eq!(code(&["--out", "t"]).0, Some(2));
}

#[test]
fn overhead_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tracing(folder.path(), &["--overhead", "2", "--json"], &["true"], "");
    let output = finished(&mut command);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["runs"], 2);
    assert!(
        answer["untraced_s"].as_f64().unwrap() > 0.0 && answer["overhead_percent"].is_number(),
        "{answer}"
    );
}

/// Compiles a program of `tests/mpi`; none, if the compiler is missing.
fn compile(folder: &Path, compiler: &str, source: &str) -> Option<PathBuf> {
    let program = folder.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/mpi")
        .join(source);
    let output = Command::new(compiler)
        .arg("-o")
        .args([&program, &source])
        .current_dir(folder)
        .output()
        .ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(program)
}

/// Traces three ranks of a program that prints "ok".
fn trace_ranks(folder: &Path, program: &Path) -> Vec<Value> {
    let command = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
        "-np",
        "3",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        program.to_str().unwrap(),
    ];
    let output = finished(&mut tracing(folder, &[], &command, ""));
    assert!(output.status.success() && output.stdout == b"ok\n", "{output:?}");
    events(folder)
}

/// How many events of each type every rank has.
fn by_rank(events: &[Value]) -> HashMap<u64, (usize, usize)> {
    let mut counts: HashMap<u64, (usize, usize)> = HashMap::new();
    for event in events {
        let counts = counts.entry(event["process"].as_u64().unwrap()).or_default();
        counts.0 += usize::from(event["type"] == "send");
        counts.1 += usize::from(event["type"] == "end_recv");
    }
    counts
}

#[test]
fn every_call_of_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "mpicc", "calls.c") else {
        return skipped("mpicc is not installed");
    };
    let events = trace_ranks(folder.path(), &program);
    let prediction = predict(folder.path());
    assert_eq!(prediction["messages"]["in_flight"], 0, "{prediction}");
    // Point to point, in the world: 11 messages and 3 persistent ones, each from a rank to the next.
    for (rank, next) in [(0, 1), (1, 2), (2, 0)] {
        let sent = events.iter().filter(|event| {
            let channel = format!("{rank}>{next}:");
            event["type"] == "send"
                && event["message"].as_str().unwrap().starts_with(&channel)
                && event["message"] != format!("{channel}c")
        });
        assert_eq!(sent.count(), 14, "{rank}");
    }
    assert_eq!(by_rank(&events).len(), 3);
    assert!(
        events
            .iter()
            .all(|event| event["type"] != "send" || event["to"].is_u64())
    );
}

#[test]
fn fortran() {
    let folder = tempfile::tempdir().unwrap();
    // The wrapper may be there without the compiler.
    let has_compiler = Command::new("gfortran").arg("--version").output().is_ok();
    let compiled = has_compiler.then(|| compile(folder.path(), "mpifort", "calls.f90"));
    let Some(program) = compiled.flatten() else {
        return skipped("mpifort or gfortran is not installed");
    };
    let events = trace_ranks(folder.path(), &program);
    assert_eq!(predict(folder.path())["messages"]["in_flight"], 0);
    for tag in ["1", "2", "3"] {
        let channel = format!("0>1:{tag}");
        let sent = events
            .iter()
            .filter(|event| event["type"] == "send" && event["message"] == channel.as_str());
        assert_eq!(sent.count(), 1, "{tag}");
    }
    let in_the_copy = |event: &&Value| {
        event["message"]
            .as_str()
            .is_some_and(|name| name.ends_with(":0>1:4"))
    };
    // The send, and the receive's begin and end.
    assert_eq!(events.iter().filter(in_the_copy).count(), 3);
}
