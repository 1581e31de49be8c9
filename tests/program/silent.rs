//! Whoever follows a trace is not held up by a process that computes for seconds and records nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use perturb_tests::product::executable;
use perturb_verdict::skipped;
use serde_json::Value;

/// Set in the traced programs, which are tests of this file that otherwise do nothing.
const ROLE: &str = "PERTURB_SILENT_TEST_ROLE";
/// How long one of the processes computes if nobody stops it, seconds: only a test that fails takes so long.
const LIMIT: u64 = 60;
/// Keep-alives of all processes in a second, at most: twice a second each.
const KEPT_PER_SECOND: u64 = 2 * 4;
/// Messages of the others, one way.
const MESSAGES: u64 = 40;
/// Messages of a barrier of four ranks, by dissemination.
const BARRIER: u64 = 4 * 2;

// The traced programs.

/// Three processes: this one and `talk` talk to each other; `compute` sends a message and computes until it finds a file.
#[test]
fn traced_program() {
    let Ok(role) = env::var(ROLE) else { return };
    // What it does; the file; the port.
    let words: Vec<&str> = role.split(' ').collect();
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", words[2].parse().unwrap())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    };
    let mut byte = [7];
    match words[0] {
        "serve" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let start = |role: &str| {
                let mut command = Command::new(env::current_exe().unwrap());
                command.args(["--exact", "traced_program"]);
                command
                    .env(ROLE, format!("{role} {} {port}", words[1]))
                    .stdout(Stdio::null());
                command.spawn().unwrap()
            };
            let mut compute = start("compute");
            listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
            let mut talk = start("talk");
            let mut talker = listener.accept().unwrap().0;
            talker.set_nodelay(true).unwrap();
            for _ in 0..MESSAGES {
                talker.read_exact(&mut byte).unwrap();
                talker.write_all(&byte).unwrap();
            }
            assert!(talk.wait().unwrap().success() && compute.wait().unwrap().success());
        }
        "compute" => {
            connect().write_all(&byte).unwrap();
            let start = Instant::now();
            while !Path::new(words[1]).exists() && start.elapsed() < Duration::from_secs(LIMIT) {
                std::hint::spin_loop();
            }
        }
        "talk" => {
            let mut stream = connect();
            for _ in 0..MESSAGES {
                thread::sleep(Duration::from_millis(20));
                stream.write_all(&byte).unwrap();
                stream.read_exact(&mut byte).unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

// The tests.

/// The file that ends the computation.
fn stop(folder: &Path) -> PathBuf {
    folder.join("stop")
}

/// Follows a traced command with processes of these names until it is reported that so many messages are received. The computation is stopped only then: keep-alives, and begins of receives, must have let the report go on.
fn follow(folder: &Path, groups: &str, layer: &str, command: &[&str], role: &str, messages: u64) {
    let (socket, scenario, trace) = (
        folder.join("events"),
        folder.join("scenario.yaml"),
        folder.join("trace.jsonl"),
    );
    let tables = "network:\n  local: [{size: 0B, time: 10us}]\n  remote: [{size: 0B, time: 100us}]\n";
    fs::write(&scenario, format!("groups: {groups}\n{tables}")).unwrap();
    let begun = Instant::now();
    let mut program = Command::new(executable());
    program.args(["trace", "--layer", layer, "--out"]).arg(&trace);
    program.arg("--collect").arg(&socket).arg("--").args(command);
    program.env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::null());
    let mut program = program.spawn().unwrap();
    while !socket.exists() {
        assert!(
            program.try_wait().unwrap().is_none(),
            "it ended before it listened"
        );
        thread::sleep(Duration::from_millis(5));
    }
    let mut follower = Command::new(executable());
    follower.args([
        "predict", "whatif", "--json", "--follow", "--every", "0", "--events",
    ]);
    follower.args([&socket, &scenario]).stdout(Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let mut received = 0;
    for line in BufReader::new(follower.stdout.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        // It says so once the program has ended.
        if line["final"] != false {
            break;
        }
        let count = |key: &str| line["messages"][key].as_u64().unwrap();
        received = count("remote") - count("in_flight");
        if received >= messages {
            break;
        }
    }
    let computes = begun.elapsed() < Duration::from_secs(LIMIT);
    fs::write(stop(folder), "").unwrap();
    let _ = follower.kill();
    follower.wait().unwrap();
    assert!(program.wait().unwrap().success());
    let events = fs::read_to_string(&trace).unwrap();
    let kept = events.matches("\"keep_alive\"").count() as u64;
    assert!(
        computes && received >= messages,
        "{received} of {messages} messages were reported while one computed: {computes}; {kept} keep-alives"
    );
    let most = KEPT_PER_SECOND * (begun.elapsed().as_secs() + 1);
    assert!((1..=most).contains(&kept), "{kept} keep-alives, at most {most}");
}

#[test]
fn others_talk_over_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let program = env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let name = Path::new(program).file_name().unwrap().to_str().unwrap();
    let groups = format!("[[{name}.1], [{name}.2], [{name}.3]]");
    follow(
        folder.path(),
        &groups,
        "sockets",
        &[program, "--exact", "traced_program"],
        &format!("serve {}", stop(folder.path()).display()),
        // `compute` has sent one, and after the last one the first process waits for the others' ends.
        2 * MESSAGES,
    );
}

#[test]
fn others_talk_by_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("silent");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi/silent.c");
    let compiled = Command::new("mpicc").arg("-o").args([&program, &source]).status();
    let Ok(status) = compiled else {
        return skipped("mpicc is not installed");
    };
    assert!(status.success());
    let (file, limit) = (stop(folder.path()), LIMIT.to_string());
    let mut command = vec![
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
    ];
    command.extend(["-np", "4", "--mca", "mpi_yield_when_idle", "1"]);
    command.extend([program.to_str().unwrap(), file.to_str().unwrap(), &limit]);
    follow(
        folder.path(),
        "[[0], [1], [2], [3]]",
        "mpi",
        &command,
        "",
        BARRIER + 2 * MESSAGES,
    );
}
