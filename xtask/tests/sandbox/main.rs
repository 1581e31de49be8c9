//! The guests as their users see them: `cargo xtask sandbox -- CMD` and `cargo xtask vm -- CMD`, on real kernels.
//!
//! Each test starts the program through a hard link of its own, by which it can tell its kernels from those of
//! other tests and other users of this machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod stock;

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
        process::ExitStatusExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use perturb_verdict::skipped;

/// A directory and a program of one test.
struct Bench {
    directory: PathBuf,
    xtask: PathBuf,
    guest: Guest,
}

/// What the command runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guest {
    UserMode,
    Stock,
}

impl Bench {
    /// `None`, and a note for the tally, where there is no user-mode kernel.
    fn new(test: &str) -> Option<Self> {
        if let Err(error) = perturb_sandbox::Sandbox::find() {
            skipped(&error.to_string());
            return None;
        }
        let directory = Self::directory(test);
        let xtask = directory.join("xtask");
        fs::hard_link(env!("CARGO_BIN_EXE_xtask"), &xtask).unwrap();
        Some(Self {
            directory,
            xtask,
            guest: Guest::UserMode,
        })
    }

    /// As [`Self::new`], with the distribution's kernel, which set-up has unpacked.
    fn stock(test: &str) -> Option<Self> {
        let xtask = PathBuf::from(env!("CARGO_BIN_EXE_xtask"));
        let kernel = xtask.ancestors().nth(2).unwrap().join("xtask/kernels/stable");
        if let Err(error) = perturb_sandbox::Sandbox::stock(&kernel, 2) {
            skipped(&error.to_string());
            return None;
        }
        Some(Self {
            directory: Self::directory(test),
            xtask,
            guest: Guest::Stock,
        })
    }

    fn directory(test: &str) -> PathBuf {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        if directory.exists() {
            fs::remove_dir_all(&directory).unwrap();
        }
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn command<S: AsRef<OsStr>>(&self, options: &[&str], argv: &[S]) -> Command {
        // What runs the tests may ignore SIGINT (a background job of a shell does), and what it ignores its children do.
        let mut command = Command::new("env");
        command
            .arg("--default-signal")
            .arg(&self.xtask)
            .arg(match self.guest {
                Guest::UserMode => "sandbox",
                Guest::Stock => "vm",
            })
            .args(options)
            .arg("--")
            .args(argv)
            .current_dir(&self.directory);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run<S: AsRef<OsStr>>(&self, argv: &[S]) -> Output {
        self.command(&[], argv).output().unwrap()
    }

    /// The command lines of this test's kernels.
    fn kernels(&self) -> Vec<String> {
        let mark = match self.guest {
            Guest::UserMode => format!("init=\"{}\"", self.xtask.display()),
            // The share of the directory that the command may write to.
            Guest::Stock => format!("path={}\0", self.directory.display()),
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .filter(|line| line.contains(&mark))
            .collect()
    }

    /// Every process and file of this test's kernels is gone, or is within two seconds.
    fn assert_nothing_left(&self, scratch: Option<&Path>) {
        let start = Instant::now();
        while !self.kernels().is_empty() {
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "left: {:?}",
                self.kernels()
            );
            thread::sleep(Duration::from_millis(20));
        }
        if let Some(scratch) = scratch {
            assert!(!scratch.exists(), "left: {}", scratch.display());
        }
    }

    /// The kernel's control directory on the host.
    fn scratch(&self) -> PathBuf {
        let kernels = self.kernels();
        let mut arguments = kernels[0].split('\0');
        let path = match self.guest {
            Guest::UserMode => arguments.find_map(|argument| argument.strip_prefix("uml_dir=")),
            Guest::Stock => arguments.find_map(|argument| argument.strip_suffix("/archive")),
        };
        path.unwrap().into()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Starts a command that says when it runs, and waits for that.
fn start(bench: &Bench, options: &[&str], script: &str) -> Child {
    let mut child = bench.command(options, &["sh", "-c", script]).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    child
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -s {name} {}", child.id())])
        .status()
        .unwrap();
    assert!(status.success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exit_codes_pass_through() {
    let Some(bench) = Bench::new("exit_codes_pass_through") else {
        return;
    };
    for code in [0, 1, 7, 127, 255] {
        let output = bench.run(&["sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
    let output = bench.run(&["sh", "-c", "kill -s KILL $$"]);
    assert_eq!(output.status.code(), Some(128 + 9), "{}", text(&output.stderr));
    let output = bench.run(&["/no/such/program"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("could not start /no/such/program: No such file"),
        "{output:?}"
    );
    bench.assert_nothing_left(None);
}

#[test]
fn a_megabyte_each_way_arrives_unchanged() {
    let Some(bench) = Bench::new("a_megabyte_each_way_arrives_unchanged") else {
        return;
    };
    // Every byte value, with a period that is no power of two; a multiplicative generator modulo 65537.
    let values = std::iter::successors(Some(1_u32), |value| Some(value * 75 % 65537));
    let data: Vec<u8> = values.flat_map(u32::to_le_bytes).take(1 << 20).collect();
    let mut child = bench
        .command(&[], &["sh", "-c", "tee copy; echo done >&2"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = data.clone();
    let writer = thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "done\n");
    assert!(
        output.stdout == data,
        "standard output differs ({} bytes)",
        output.stdout.len()
    );
    assert!(
        fs::read(bench.directory.join("copy")).unwrap() == data,
        "the file differs"
    );
}

#[test]
fn arguments_environment_and_directory_pass_through() {
    let Some(bench) = Bench::new("arguments_environment_and_directory_pass_through") else {
        return;
    };
    let script = r#"printf '<%s>' "$@" "$ODD" "$PWD"; id -u"#;
    let odd = OsStr::from_bytes(b"a b\"'\\$(id)\n\xff");
    let argv = [
        OsStr::new("sh"),
        OsStr::new("-c"),
        OsStr::new(script),
        OsStr::new("sh"),
        OsStr::new(""),
        odd,
    ];
    let output = bench.command(&[], &argv).env("ODD", odd).output().unwrap();
    let mut expected = b"<>".to_vec();
    for word in [odd, odd, bench.directory.as_os_str()] {
        expected.extend_from_slice(&[b"<", word.as_bytes(), b">"].concat());
    }
    expected.extend_from_slice(b"0\n");
    assert_eq!(text(&output.stdout), text(&expected), "{}", text(&output.stderr));
    assert_eq!(output.stdout, expected);
}

#[test]
fn only_the_working_directory_keeps_changes() {
    let Some(bench) = Bench::new("only_the_working_directory_keeps_changes") else {
        return;
    };
    let outside = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    fs::write(&outside, "before").unwrap();
    let script = format!(
        "echo kept > kept && echo after > {0} && cat {0} && echo x > /etc/perturb-sandbox-test && rm /etc/passwd && ls /etc/passwd",
        outside.display()
    );
    let output = bench.run(&["sh", "-c", &script]);
    assert_eq!(text(&output.stdout), "after\n", "{}", text(&output.stderr));
    assert_eq!(
        fs::read_to_string(bench.directory.join("kept")).unwrap(),
        "kept\n"
    );
    assert_eq!(fs::read_to_string(&outside).unwrap(), "before");
    assert!(!Path::new("/etc/perturb-sandbox-test").exists());
    assert!(Path::new("/etc/passwd").exists());
    fs::remove_file(outside).unwrap();
}

#[test]
fn the_kernel_has_what_emulation_needs() {
    let Some(bench) = Bench::new("the_kernel_has_what_emulation_needs") else {
        return;
    };
    let script = "set -e
        ip netns add h2
        ip link add eth0 type veth peer name eth1
        ip addr add 10.77.0.1/24 dev eth0
        ip addr add fd77::1/64 dev eth0 nodad
        ip link set eth0 up
        tc qdisc add dev eth0 root fq
        tc qdisc replace dev eth0 root netem delay 1ms
        tc qdisc add dev eth0 clsact
        ip tuntap add dev tap0 mode tap vnet_hdr
        mount | grep -q '/sys/fs/bpf type bpf'
        : > /dev/shm/x; : > /run/x
        ping -c 1 -W 2 127.0.0.1 > /dev/null
        echo fine";
    let output = bench.run(&["sh", "-c", script]);
    assert_eq!(text(&output.stdout), "fine\n", "{}", text(&output.stderr));
}

#[test]
fn a_command_that_takes_too_long_is_killed() {
    let Some(bench) = Bench::new("a_command_that_takes_too_long_is_killed") else {
        return;
    };
    let mut child = start(
        &bench,
        &["--timeout", "1"],
        "echo ready; trap '' INT TERM HUP; sleep 1000 & sleep 1000",
    );
    let scratch = bench.scratch();
    let begin = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    bench.assert_nothing_left(Some(&scratch));
    let mut stderr = String::new();
    child.stderr.unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("did not end within 1 s"), "{stderr}");
}

#[test]
fn what_the_command_left_in_the_background_ends_with_it() {
    let Some(bench) = Bench::new("what_the_command_left_in_the_background_ends_with_it") else {
        return;
    };
    // The background process keeps standard output open.
    let output = bench.run(&["sh", "-c", "sleep 1000 & echo said; exit 4"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(4), "said\n")
    );
    bench.assert_nothing_left(None);
}

#[test]
fn a_signal_goes_to_the_command() {
    let Some(bench) = Bench::new("a_signal_goes_to_the_command") else {
        return;
    };
    let mut child = start(
        &bench,
        &[],
        "trap 'exit 9' INT; echo ready; while :; do sleep 0.1; done",
    );
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(9));
    bench.assert_nothing_left(None);
}

#[test]
fn a_command_that_ignores_signals_is_killed_by_the_second() {
    let Some(bench) = Bench::new("a_command_that_ignores_signals_is_killed_by_the_second") else {
        return;
    };
    let mut child = start(
        &bench,
        &[],
        "trap '' TERM; echo ready; while :; do sleep 0.1; done",
    );
    signal(&child, "TERM");
    thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    bench.assert_nothing_left(None);
}

#[test]
fn a_killed_sandbox_leaves_nothing() {
    let Some(bench) = Bench::new("a_killed_sandbox_leaves_nothing") else {
        return;
    };
    let mut child = start(&bench, &[], "echo ready; sleep 1000");
    let scratch = bench.scratch();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    bench.assert_nothing_left(Some(&scratch));
}

#[test]
fn a_kernel_that_panics_is_an_error_with_its_last_words() {
    let Some(bench) = Bench::new("a_kernel_that_panics_is_an_error_with_its_last_words") else {
        return;
    };
    let output = bench.run(&["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 1000"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("died before the command ended") && stderr.contains("panic"),
        "{stderr}"
    );
    bench.assert_nothing_left(None);
}

#[test]
fn a_reader_that_leaves_ends_the_command() {
    let Some(bench) = Bench::new("a_reader_that_leaves_ends_the_command") else {
        return;
    };
    let mut child = bench.command(&[], &["yes"]).spawn().unwrap();
    let mut some = [0; 4];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
    bench.assert_nothing_left(None);
}
