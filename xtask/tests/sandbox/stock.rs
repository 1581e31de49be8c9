//! Stock kernels.

use super::*;

#[test]
fn a_stock_kernel_has_processors_compiler_types_and_qdiscs() {
    let Some(bench) = Bench::stock("a_stock_kernel_has_processors_compiler_types_and_qdiscs") else {
        return;
    };
    let script = r#"set -e
        test "$(nproc)" = 3
        test "$(cat /proc/sys/net/core/bpf_jit_enable)" = 1
        test -s /sys/kernel/btf/vmlinux
        ip link add eth0 numtxqueues 3 type veth peer name eth1
        tc qdisc add dev eth0 root handle 1: mq
        tc qdisc replace dev eth0 parent 1:1 fq
        tc qdisc replace dev eth0 parent 1:2 netem delay 1ms
        tc qdisc add dev eth0 clsact
        ip tuntap add dev tap0 mode tap vnet_hdr
        ping -c 1 -W 2 127.0.0.1 > /dev/null
        echo kept > kept
        echo x > /etc/perturb-vm-test
        tee copy > /dev/null
        echo "to stderr" >&2
        echo fine
        exit 7"#;
    let data: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut child = bench
        .command(&["--cpus", "3"], &["sh", "-c", script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = data.clone();
    // A command that fails does not read.
    let writer = thread::spawn(move || drop(stdin.write_all(&sent)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(text(&output.stdout), "fine\n", "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "to stderr\n");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        fs::read_to_string(bench.directory.join("kept")).unwrap(),
        "kept\n"
    );
    assert!(
        fs::read(bench.directory.join("copy")).unwrap() == data,
        "the file differs"
    );
    assert!(!Path::new("/etc/perturb-vm-test").exists());
    bench.assert_nothing_left(None);
}

#[test]
fn a_stock_kernel_ends_by_signal_and_time() {
    let Some(bench) = Bench::stock("a_stock_kernel_ends_by_signal_and_time") else {
        return;
    };
    let script = "trap 'exit 9' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = start(&bench, &[], script);
    let scratch = bench.scratch();
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(9));
    bench.assert_nothing_left(Some(&scratch));

    let mut child = start(&bench, &["--timeout", "1"], "echo ready; trap '' INT; sleep 1000");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("did not end within 1 s"), "{stderr}");
    bench.assert_nothing_left(None);
}

#[test]
fn a_stock_kernel_that_is_killed_while_it_boots_leaves_nothing() {
    let Some(bench) = Bench::stock("a_stock_kernel_that_is_killed_while_it_boots_leaves_nothing") else {
        return;
    };
    let mut child = bench.command(&[], &["true"]).spawn().unwrap();
    while bench.kernels().is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        thread::sleep(Duration::from_millis(10));
    }
    let scratch = bench.scratch();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let start = Instant::now();
    while scratch.exists() && start.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(20));
    }
    bench.assert_nothing_left(Some(&scratch));
}

#[test]
fn a_stock_kernel_that_dies_while_it_boots_is_started_again_twice() {
    let Some(bench) = Bench::stock("a_stock_kernel_that_dies_while_it_boots_is_started_again_twice") else {
        return;
    };
    let programs = bench.directory.join("programs");
    fs::create_dir(&programs).unwrap();
    let boots = bench.directory.join("boots");
    let path = env::var("PATH").unwrap();
    // The first kernels die with these words.
    let run = |deaths: u32, words: &str| {
        let script = format!(
            "#!/bin/sh\necho >> '{}'\n\
             if [ $(wc -l < '{0}') -le {deaths} ]; then echo '{words}' >&2; exit 1; fi\n\
             PATH='{path}' exec qemu-system-x86_64 \"$@\"\n",
            boots.display()
        );
        let program = programs.join("qemu-system-x86_64");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&boots, "").unwrap();
        let output = bench
            .command(&[], &["echo", "fine"])
            .env("PATH", format!("{}:{path}", programs.display()))
            .output()
            .unwrap();
        bench.assert_nothing_left(None);
        let boots = fs::read_to_string(&boots).unwrap().len();
        (output, boots)
    };
    const PANIC: &str = "Oops: int3: 0000\nKernel panic - not syncing";
    let (output, boots) = run(2, PANIC);
    let said = text(&output.stderr);
    assert_eq!((text(&output.stdout).as_str(), boots), ("fine\n", 3), "{said}");
    assert_eq!(output.status.code(), Some(0));
    for part in ["died while it booted", "int3", "again (2 of 3)", "again (3 of 3)"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (output, boots) = run(3, PANIC);
    assert_eq!((text(&output.stdout).as_str(), boots), ("", 3));
    assert_eq!(output.status.code(), Some(1));
    // Where the emulator fails, it would only fail again.
    let (output, boots) = run(1, "cannot set up guest memory");
    assert_eq!((output.status.code(), boots), (Some(1), 1));
    assert!(text(&output.stderr).contains("cannot set up guest memory"));
}

/// While the guest's root is made, a file system of its own hides what the host has in /tmp.
#[test]
fn a_stock_kernel_may_lie_in_tmp() {
    let Some(bench) = Bench::stock("a_stock_kernel_may_lie_in_tmp") else {
        return;
    };
    let there = bench
        .xtask
        .ancestors()
        .nth(2)
        .unwrap()
        .join("xtask/kernels/stable");
    let there = fs::canonicalize(there).unwrap();
    let target = PathBuf::from(format!("/tmp/perturb-vm-{}", std::process::id()));
    let kernel = target.join("xtask/kernels/stable");
    fs::create_dir_all(&kernel).unwrap();
    fs::create_dir(target.join("debug")).unwrap();
    for part in ["boot", "lib"] {
        symlink(there.join(part), kernel.join(part)).unwrap();
    }
    let xtask = target.join("debug/xtask");
    fs::copy(&bench.xtask, &xtask).unwrap();
    let bench = Bench {
        directory: target,
        xtask,
        guest: Guest::Stock,
    };
    let output = bench.run(&["sh", "-c", "pwd; echo kept > kept"]);
    assert_eq!(
        text(&output.stdout),
        format!("{}\n", bench.directory.display()),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        fs::read_to_string(bench.directory.join("kept")).unwrap(),
        "kept\n"
    );
    bench.assert_nothing_left(None);
}
