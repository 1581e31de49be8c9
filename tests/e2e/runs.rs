//! `perturb run`: private hosts for the time of a command.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use perturb_tests::{
    processors::{awake, soft_interrupts, usable},
    product::{ORDINARY_RECORDS, Pacer},
    remains,
};

use crate::harness::{Setting, Test, each, figure, hosts, skip, thrice};

pub(crate) const TESTS: &[Test] = &[
    hosts("runs::exit_codes_and_streams", codes),
    hosts("runs::environment_names_and_hosts", environment),
    hosts("runs::private_hosts_have_private_hosts", nested),
    hosts("runs::status_says_which_host", status),
    hosts("runs::two_to_eight_hosts", up_to_eight),
    hosts("runs::round_trip_is_twice_the_latency", ping),
    hosts("runs::a_killed_run_leaves_nothing", killed),
    each("runs::backlogs_have_room", backlog),
    hosts("runs::a_terminated_run_ends_its_command", terminated),
    hosts("runs::an_interrupt_comes_once", interrupted),
    each("runs::steering_says_where_a_receiver_pays", |setting| {
        setting.fairly(|| pays(setting))
    }),
];

fn run(setting: &Setting, profile: &str, hosts: u32, command: &[&str]) -> Result<Command> {
    let profile = setting.product.profile(profile)?;
    let mut run = setting.perturb()?;
    run.args([
        "run",
        "--pacer",
        setting.pacer.name(),
        "--hosts",
        &hosts.to_string(),
    ])
    .arg(profile)
    .arg("--")
    .args(command)
    .stdin(Stdio::null());
    Ok(run)
}

fn shell(setting: &Setting, hosts: u32, script: &str) -> Result<Output> {
    run(setting, "latency: 1ms", hosts, &["sh", "-c", script])?
        .output()
        .context("starting perturb run")
}

/// What a command printed.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs a shell's script over a profile with three hosts; it finds perturb in PERTURB and a folder in FOLDER.
pub(crate) fn run_script(setting: &Setting, profile: &str, script: &str, folder: &Path) -> Result<()> {
    let output = Command::new(&setting.product.path)
        .args(["run", "--pacer", setting.pacer.name(), "--hosts", "3"])
        .arg(setting.product.profile(profile)?)
        .args(["--", "sh", "-c", script])
        .env("PERTURB", &setting.product.path)
        .env("FOLDER", folder)
        .stdin(Stdio::null())
        .output()
        .context("starting perturb run")?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

/// The record of a run, which must not outlive the next command.
fn record(setting: &Setting, pid: u32) -> bool {
    let records = match setting.pacer {
        Pacer::Switch => ORDINARY_RECORDS,
        Pacer::Fq | Pacer::User => "/run/perturb",
    };
    fs::exists(format!("{records}/run-{pid}")).unwrap_or(true)
}

/// While packets are held, the processors' backlogs take more of them; afterwards what they took before.
fn backlog(setting: &Setting) -> Result<()> {
    // docs/pacers.md
    const LEAST: u32 = 65_536;
    let before = remains::backlog()?;
    if before >= LEAST {
        return Err(skip("net.core.netdev_max_backlog is that large already"));
    }
    let mut run = run(setting, "latency: 1ms", 2, &["sh", "-c", "echo up; read line"])?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(run.stdout.take().context("no output")?).read_line(&mut line)?;
    let meanwhile = remains::backlog()?;
    drop(run.stdin.take());
    run.wait()?;
    let after = remains::backlog()?;
    ensure!(line == "up\n", "{line:?}");
    ensure!(
        meanwhile >= LEAST,
        "{meanwhile} packets at most while packets are held"
    );
    ensure!(after == before, "{before} before, {after} afterwards");
    Ok(())
}

fn codes(setting: &Setting) -> Result<()> {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        ("exit 255", 255),
    ] {
        let output = shell(setting, 2, script)?;
        ensure!(
            output.status.code() == Some(code),
            "`{script}` became {}: {output:?}",
            output.status
        );
    }
    let missing = run(setting, "latency: 1ms", 2, &["/no/such/program"])?.output()?;
    ensure!(
        missing.status.code() == Some(127),
        "a missing program became {}",
        missing.status
    );
    let mut cat = run(setting, "latency: 1ms", 2, &["sh", "-c", "cat; echo error >&2"])?;
    let mut cat = cat
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let data = vec![b'x'; 1 << 20];
    let mut stdin = cat.stdin.take().context("no standard input")?;
    let writer = thread::spawn({
        let data = data.clone();
        move || stdin.write_all(&data)
    });
    let output = cat.wait_with_output()?;
    writer
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ensure!(
        output.stdout == data,
        "{} of {} bytes came back",
        output.stdout.len(),
        data.len()
    );
    ensure!(
        output.stderr == b"error\n",
        "standard error: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Inside of them are others, of which there are as many as that one asks for.
fn nested(setting: &Setting) -> Result<()> {
    let (program, pacer) = (setting.product.path.display(), setting.pacer.name());
    let inner = setting.product.profile("latency: 5ms")?;
    let script = format!(
        "{program} run --pacer {pacer} --hosts 3 {} -- sh -c 'hostname; ping -q -c 2 -i 0.1 h3 | sed -n \"s|.*= \\([0-9]*\\)\\..*|\\1|p\"'; \
         getent ahostsv4 h3 | head -1",
        inner.display()
    );
    let output = shell(setting, 2, &script)?;
    let text = said(&output);
    let lines: Vec<&str> = text.lines().collect();
    let trip: Option<u32> = lines.get(1).and_then(|ms| ms.parse().ok());
    ensure!(
        lines.len() == 2 && lines[0] == "h1" && trip.is_some_and(|ms| (10..30).contains(&ms)),
        "{output:?}"
    );
    Ok(())
}

fn environment(setting: &Setting) -> Result<()> {
    let output = shell(setting, 3, "echo $PERTURB_HOSTS,$PERTURB_PEER,$(hostname)")?;
    ensure!(
        said(&output) == "h1 h2 h3,h2,h1",
        "the environment is {}: {output:?}",
        said(&output)
    );
    let names = shell(
        setting,
        3,
        "getent ahostsv4 h3 | head -1; ip -brief address show eth0; ip netns list | sort",
    )?;
    let text = said(&names);
    ensure!(text.starts_with("10.77.0.3"), "h3 is {text}");
    ensure!(
        text.contains("10.77.0.1/") && text.ends_with("h1\nh2\nh3"),
        "{text}"
    );
    let program = setting.product.path.display();
    let other = shell(
        setting,
        3,
        &format!("{program} on h2 -- sh -c 'hostname; ip -brief address show eth0'"),
    )?;
    let text = said(&other);
    ensure!(
        text.starts_with("h2") && text.contains("10.77.0.2/"),
        "on h2: {text}"
    );
    Ok(())
}

/// `status` on each host names all of them and the one it is about.
fn status(setting: &Setting) -> Result<()> {
    let program = setting.product.path.display();
    for (before, host) in [("", "h1"), ("ip netns exec h2 ", "h2")] {
        let output = shell(setting, 2, &format!("{before}{program} status"))?;
        let text = said(&output);
        ensure!(
            text.contains("h1:eth0, h2:eth0: emulated by") && text.contains(&format!("this is {host};")),
            "on {host}: {output:?}"
        );
        let output = shell(setting, 2, &format!("{before}{program} status --json"))?;
        let reports: serde_json::Value = serde_json::from_str(&said(&output))?;
        let own = |report: &&serde_json::Value| report["host"] == host;
        let reports = reports.as_array().context("no array")?;
        let report = reports.iter().find(own).context("no report of the host")?;
        ensure!(
            report["hosts"] == serde_json::json!(["h1", "h2"])
                && report["interfaces"] == serde_json::json!(["eth0", "eth0"]),
            "{report}"
        );
    }
    Ok(())
}

fn up_to_eight(setting: &Setting) -> Result<()> {
    for hosts in [2, 3, 5, 8] {
        let script =
            (2..=hosts).map(|host| format!("ping -q -c 2 -i 0.05 -W 2 h{host} >/dev/null || exit {host}; "));
        let output = shell(setting, hosts, &script.collect::<String>())?;
        ensure!(
            output.status.success(),
            "{hosts} hosts: {}: {output:?}",
            output.status
        );
        // Between hosts other than the first, too.
        let script = format!("ip netns exec h2 ping -q -c 2 -i 0.05 -W 2 h{hosts} >/dev/null");
        ensure!(
            hosts == 2 || shell(setting, hosts, &script)?.status.success(),
            "h2 does not reach h{hosts}"
        );
    }
    Ok(())
}

/// The receiver's overhead is burnt by the processor that receive packet steering chooses for its interface.
fn pays(setting: &Setting) -> Result<Option<String>> {
    const PACKETS: u64 = 2_000;
    const OVERHEAD_US: u64 = 300;
    let &[first, .., last] = usable()?.as_slice() else {
        return Err(skip("there is one processor"));
    };
    let asked = Duration::from_micros(PACKETS * OVERHEAD_US);
    // Not connected: the answer that nobody listens would be the next packet's error.
    let sender = format!(
        "socket(my $s, PF_INET, SOCK_DGRAM, 0) or die; my $to = pack_sockaddr_in(9, inet_aton(\"10.77.0.2\")); \
         for (1..{PACKETS}) {{ send($s, \"x\", 0, $to); select(undef, undef, undef, 0.0005) }}"
    );
    let profile = format!("latency: 1ms\noverhead: {{ receive: {OVERHEAD_US}us }}");
    for (pays, sends) in [(first, last), (last, first)] {
        let script = format!(
            "ip netns exec h2 sh -c 'echo {} > /sys/class/net/eth0/queues/rx-0/rps_cpus' && \
             taskset -c {sends} perl -MSocket -e '{sender}' && sleep 0.2",
            mask(pays)
        );
        let mut command = run(setting, &profile, 2, &["sh", "-c", &script])?;
        let before = soft_interrupts()?;
        let output = awake(&[pays, sends], || Ok(command.output()?))?;
        let after = soft_interrupts()?;
        ensure!(output.status.success(), "{output:?}");
        let spent = |processor: usize| after[processor].saturating_sub(before[processor]);
        let said = format!(
            "{asked:?} are asked of processor {pays}; it spent {:?}, and processor {sends} {:?}",
            spent(pays),
            spent(sends)
        );
        figure!("{said}");
        if 2 * spent(pays) <= asked || 2 * spent(sends) >= asked {
            return Ok(Some(said));
        }
    }
    Ok(None)
}

/// A set of one processor, as sysfs reads it (`bitmap_parse`): words of 32 bits in hexadecimal, the highest first.
fn mask(processor: usize) -> String {
    let (words, bit) = (processor / 32, processor % 32);
    format!("{:x}{}", 1_u32 << bit, ",00000000".repeat(words))
}

fn ping(setting: &Setting) -> Result<()> {
    const LATE_MS: f64 = 25.0;
    thrice(|| {
        let least = least_echo_ms(setting)?;
        Ok((least >= LATE_MS).then(|| format!("no echo within {least} ms")))
    })
}

/// The least round trip of some, milliseconds; none is lost, or early.
fn least_echo_ms(setting: &Setting) -> Result<f64> {
    let output = run(
        setting,
        "latency: 10ms",
        2,
        &["ping", "-q", "-c", "20", "-i", "0.05", "h2"],
    )?
    .output()?;
    let text = said(&output);
    // rtt min/avg/max/mdev = 20.1/20.2/20.3/0.1 ms
    let times = text
        .rsplit_once("= ")
        .and_then(|(_, times)| times.split_once(" ms"))
        .context("no times")?
        .0;
    let times: Vec<f64> = times.split('/').filter_map(|time| time.parse().ok()).collect();
    figure!(
        "perturb run, 10 ms, {}: ping {times:?} ms (min, mean, max, deviation)",
        setting.pacer.name()
    );
    ensure!(text.contains(" 0% packet loss"), "{text}");
    let least = *times.first().context("no times")?;
    ensure!(least >= 20.0 - 2e-3 * setting.early_us(), "{text}");
    Ok(least)
}

/// Starts a run whose command sleeps, and waits until it does.
fn sleeping(setting: &Setting) -> Result<std::process::Child> {
    let mut child = run(
        setting,
        "latency: 1ms",
        2,
        &["sh", "-c", "echo up; sleep 100 & exec sleep 100"],
    )?
    .stdout(Stdio::piped())
    .spawn()?;
    let mut first = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().context("no standard output")?, &mut first)?;
    Ok(child)
}

fn killed(setting: &Setting) -> Result<()> {
    let mut child = sleeping(setting)?;
    let descendants = descendants(child.id());
    ensure!(descendants.len() >= 3, "only {} processes run", descendants.len());
    child.kill()?;
    child.wait()?;
    gone(&descendants)?;
    // The next command removes the record; devices and programs went with the namespaces.
    let next = shell(setting, 2, "true")?;
    ensure!(next.status.success(), "{next:?}");
    ensure!(!record(setting, child.id()), "its record is left");
    Ok(())
}

pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect();
    let deeper: Vec<u32> = children.iter().flat_map(|&child| descendants(child)).collect();
    [children, deeper].concat()
}

fn gone(pids: &[u32]) -> Result<()> {
    let start = Instant::now();
    let alive = || {
        pids.iter()
            .filter(|pid| fs::exists(format!("/proc/{pid}")).unwrap_or(true))
            .count()
    };
    while alive() > 0 {
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "{} of {} processes live on",
            alive(),
            pids.len()
        );
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A signal to perturb alone, and one to its process group, of which the command is.
fn interrupted(setting: &Setting) -> Result<()> {
    let script = "trap 'n=$((n+1))' INT; n=0; echo up; i=0; while [ $i -lt 30 ]; do sleep 0.1; i=$((i+1)); done; exit $n";
    for target in ["perturb", "group"] {
        let mut child = run(setting, "latency: 1ms", 2, &["sh", "-c", script])?
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let mut first = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().context("no standard output")?, &mut first)?;
        let pid = child.id().cast_signed();
        let receiver = if target == "group" { -pid } else { pid };
        kill(Pid::from_raw(receiver), Signal::SIGINT)?;
        let status = child.wait()?;
        ensure!(
            status.code() == Some(1),
            "to {target}: not once, but ended with {status}"
        );
    }
    Ok(())
}

fn terminated(setting: &Setting) -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut child = sleeping(setting)?;
        let descendants = descendants(child.id());
        kill(Pid::from_raw(child.id().cast_signed()), signal)?;
        let status = child.wait()?;
        ensure!(
            status.code() == Some(128 + signal as i32),
            "{signal}: ended with {status}"
        );
        gone(&descendants)?;
        ensure!(!record(setting, child.id()), "its record is left");
    }
    Ok(())
}
