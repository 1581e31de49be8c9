//! Networks as a user's tests have them, by the real perturb.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_fixtures::{Builder, Error, Host, Network};
use perturb_tests::product::executable;
use perturb_verdict::{or_end, root};

/// Makes this program's `child` one.
const CHILD: &str = "PERTURB_FIXTURES_CHILD";

fn latency() -> Builder {
    Network::of_text("version: 1\nlatency: 20ms\n").program(executable())
}

fn mobile() -> Builder {
    Network::of("mobile-lte").program(executable())
}

/// The least time to another host and back, ms.
fn round_trip(host: &Host, to: &str) -> Result<f64> {
    let said = host.run(&format!("ping -c 8 -i 0.05 -q {to}"))?;
    let least = said.split("= ").nth(1).and_then(|rest| rest.split('/').next());
    Ok(least.unwrap_or_default().parse()?)
}

#[test]
fn what_is_set_is_there() {
    or_end!(root());
    let net = latency().hosts(3).start().unwrap();
    let seen = |net: &Network| -> Result<Vec<f64>> {
        let far = net.host("h3")?;
        ensure!(far.addresses().len() == 2, "{:?}", far.addresses());
        let mut seen = vec![round_trip(net.host("h1")?, &far.addresses()[1].to_string())?];
        net.set([("latency", "50ms")])?;
        ensure!(net.profile()?.contains("latency: 50ms"), "{}", net.profile()?);
        seen.push(round_trip(net.host("h1")?, "h3")?);
        net.set_at("out", [("latency", "5ms")])?;
        seen.push(round_trip(net.host("h1")?, "h3")?);
        net.pause()?;
        seen.push(round_trip(net.host("h1")?, "h3")?);
        ensure!(net.status()?["paused"] == true);
        net.resume()?;
        Ok(seen)
    };
    let seen = seen(&net).unwrap();
    for (found, asked) in seen.iter().zip([40.0, 100.0, 55.0, 0.0]) {
        assert!((asked - 0.1..asked + 20.0).contains(found), "{seen:?}");
    }
    let report = net.end().unwrap();
    // Eight requests with their answers, three times, at either host.
    assert_eq!(report["balance"]["captured"], 2 * 8 * 3, "{report}");
}

#[test]
fn what_speaks_against_it_is_an_error() {
    or_end!(root());
    let idle = mobile().within(|net| -> Result<(), Error> {
        for (refused, why) in [
            (
                net.set([("latency", "80ms")]),
                "the servers are up, down: say which",
            ),
            (
                net.set_at("uo", [("latency", "80ms")]),
                "there is no server uo, but up, down",
            ),
            (net.set_at("up", [("latency", "80")]), "has no unit"),
            (net.host("h3").map(drop), "there is no host h3: there are h1, h2"),
            (
                net.host("h2")?.run("echo a; echo b >&2; exit 3").map(drop),
                "exit status: 3",
            ),
        ] {
            let said = refused.unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        net.set_at("up", [("latency", "80ms")])
    });
    let Err(Error::Against(why)) = idle else {
        panic!("{idle:?}");
    };
    assert!(why[0].contains("no packet crossed"), "{why:?}");
    mobile().expect_traffic(false).start().unwrap().end().unwrap();
    let refused = Network::of_text("version: 1\nlatenzy: 20ms\n")
        .program(executable())
        .start()
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Refused(why) if why.contains("did you mean")),
        "{refused:?}"
    );
    // The test's own error comes first.
    let own = latency().within(|_| -> Result<()> { anyhow::bail!("mine") });
    assert_eq!(own.unwrap_err().to_string(), "mine");
}

#[test]
fn what_no_profile_asks_for_is_an_error() {
    or_end!(root());
    // 1,400 bytes take 11 ms, and nothing limits the queue but the horizon.
    let narrow = Network::of_text("version: 1\nlatency: 1ms\nbandwidth: 1Mbit/s\nhorizon: 100ms\n")
        .program(executable());
    let flood = |net: &Network| {
        let host = net.host("h1")?;
        // Some are lost, which ping says by its exit code.
        host.run("ping -q -c 20 -l 20 -s 1400 -W 1 h2 || :").map(drop)
    };
    let faulty = narrow.clone().within(flood);
    let Err(Error::Against(why)) = faulty else {
        panic!("{faulty:?}");
    };
    assert!(
        why[0].contains("horizon") && why[0].contains("do not trust"),
        "{why:?}"
    );
    let net = narrow.allow_faults(true).start().unwrap();
    flood(&net).unwrap();
    let report = net.end().unwrap();
    assert_eq!(report["faults"][0]["place"], "horizon", "{report}");
}

#[test]
fn what_is_late_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("perturb");
    let ended = folder.path().join("ended");
    // It ends as perturb does: when its input says so.
    let script = format!(
        "#!/bin/sh\necho 'still at it' >&2\nread line\n: >'{}'\n",
        ended.display()
    );
    fs::write(&slow, script).unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    let limit = Duration::from_millis(500);
    let late = latency().program(&slow).ready_within(limit).start();
    let Err(late) = late else {
        panic!("{late:?}");
    };
    assert!(
        matches!(&late, Error::Late { limit: waited, .. } if *waited == limit),
        "{late:?}"
    );
    assert_eq!(
        late.to_string(),
        "perturb run has made no hosts within 500ms: still at it"
    );
    assert!(ended.exists(), "it is there still");
}

#[test]
fn what_takes_too_long_is_killed() {
    or_end!(root());
    let net = latency().start().unwrap();
    let host = net.host("h1").unwrap();
    let limit = Duration::from_millis(300);
    let slow = host.run_within(limit, "ping -c 1 h2 && (sleep 4715 & sleep 4715)");
    let Err(Error::Slow { out, .. }) = &slow else {
        panic!("{slow:?}");
    };
    assert!(out.contains("1 received"), "{out}");
    // `[4]` does not find the line itself.
    let left = host.run_within(Duration::from_secs(30), "pgrep -fc 'sleep [4]715'");
    assert!(
        matches!(&left, Err(Error::Command { out, .. }) if out == "0\n"),
        "{left:?}"
    );
    net.end().unwrap();
}

#[test]
fn what_is_not_there_is_said() {
    let missing = Network::of("mobile-lte").program("/nowhere/perturb").start();
    assert!(
        matches!(&missing, Err(Error::Missing(why)) if why.contains("PERTURB_BIN")),
        "{missing:?}"
    );
    or_end!(root());
    let net = latency().start().unwrap();
    let run: i32 = net.id().strip_prefix("run-").unwrap().parse().unwrap();
    kill(Pid::from_raw(run), Signal::SIGKILL).unwrap();
    let begin = Instant::now();
    let ended = loop {
        match net.host("h1") {
            Ok(_) => thread::sleep(Duration::from_millis(10)),
            Err(error) => break error,
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "it is there still");
    };
    assert!(
        matches!(&ended, Error::Ended { status, .. } if status.to_string().contains("SIGKILL")),
        "{ended:?}"
    );
}

#[test]
fn there_may_be_a_runtime_already() {
    or_end!(root());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let net = latency().expect_traffic(false).start().unwrap();
        net.set([("latency", "30ms")]).unwrap();
        net.end().unwrap();
    });
}

/// Is killed by [`nothing_outlives_its_process`].
#[test]
fn child() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let net = latency().start().unwrap();
    println!("\nnetwork {}", net.id());
    let _ = net.host("h1").unwrap().run("sleep 4714");
}

#[test]
fn nothing_outlives_its_process() {
    or_end!(root());
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let id = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.strip_prefix("network run-")?.to_owned()))
        .unwrap();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    let begin = Instant::now();
    let left = |id: &str| {
        Path::new("/run/perturb").join(format!("run-{id}")).exists()
            || fs::exists(format!("/proc/{id}")).unwrap()
    };
    while left(&id) {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "run-{id} is there still"
        );
        thread::sleep(Duration::from_millis(50));
    }
}
