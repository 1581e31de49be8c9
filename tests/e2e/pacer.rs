//! The user pacer: how exact, how fast, and what happens to a TCP stream when it stalls.
//!
//! Accuracy is stated over a control without emulation in the same run; the bounds are for a machine that does
//! nothing else and has a processor beside the sender's.

mod threads;

use std::{path::PathBuf, process::Stdio, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use perturb_stats::Sample;
use perturb_tests::{
    bed::{Bed, Host},
    clock,
    datagrams::{self, Plan},
    measure::{self, Quantiles},
    order,
    product::{Applied, Pacer},
};
use serde_json::Value;

use crate::{
    accounting::at_rest,
    harness::{Setting, Test, figure, once, skip, thrice},
    order::named_losses,
};

pub(crate) const TESTS: &[Test] = &[
    once("pacer::error_without_spinning", |setting| {
        error(setting, &[], 60.0, 300.0)
    })
    .long(),
    once("pacer::error_with_spinning", |setting| {
        error(setting, &["--spin", "300us"], 60.0, 100.0)
    })
    .long(),
    once("pacer::jitter_of_10_000_packets_per_second", |setting| {
        setting.fairly(|| jitter(setting))
    }),
    once(
        "pacer::flows_keep_their_order_on_many_threads",
        threads::order_on_threads,
    ),
    once("pacer::lateness_drops_nothing", lateness_drops_nothing),
    once("pacer::small_packets", small_packets).long(),
    once("pacer::busy_threads_are_not_stopped", busy),
    once("pacer::lateness_is_made_up_for", lead),
    once("pacer::stopped_under_iperf3", |setting| {
        thrice(|| stall(setting, Signal::SIGSTOP))
    })
    .long(),
    once("pacer::killed_under_iperf3", |setting| {
        thrice(|| stall(setting, Signal::SIGKILL))
    }),
];

/// Packets per delay.
const PACKETS: usize = 1_000;

/// The user pacer is the subject whatever the setting's own.
fn needed(setting: &Setting) -> Result<()> {
    if setting.kernel.tun {
        Ok(())
    } else {
        Err(skip("this kernel has no TUN"))
    }
}

fn error(setting: &Setting, spin: &[&str], median_us: f64, tail_us: f64) -> Result<()> {
    setting.needs_fair_timing()?;
    thrice(|| excess(setting, spin, median_us, tail_us))
}

/// What is wrong with the size of the errors, if anything. No packet is early by more than the lead may be.
fn excess(setting: &Setting, spin: &[&str], median_us: f64, tail_us: f64) -> Result<Option<String>> {
    needed(setting)?;
    if !setting.kernel.jit {
        return Err(skip(
            "the sandbox has one processor for sender, receiver and pacer",
        ));
    }
    let mut faults = Vec::new();
    for milliseconds in [1, 10, 100] {
        let latency = Duration::from_millis(milliseconds);
        let bed = Bed::new()?;
        let control = Quantiles::of(&measure::delays(&bed, PACKETS, Duration::ZERO)?)?;
        let profile = format!("latency: {milliseconds}ms");
        let applied = setting
            .product
            .apply_with(&bed.left, &profile, Pacer::User, spin)?;
        let asked = latency.as_secs_f64() * 1e6;
        let found = Quantiles::less(&measure::delays(&bed, PACKETS, latency)?, asked)?;
        applied.nothing_unintended()?;
        applied.stop()?;
        figure!(
            "{milliseconds} ms {}: error {found} us (p50 / p99 of {PACKETS}); off {control}; over it \
             {:.1} / {:.1}",
            spin.join(" "),
            found.p50.point - control.p50.point,
            found.p99.point - control.p99.point
        );
        ensure!(
            found.min >= -setting.early_us(),
            "{milliseconds} ms: a packet arrived {:.1} us early",
            -found.min
        );
        for (name, found, control, bound) in [
            ("median", found.p50, control.p50, median_us),
            ("99th percentile", found.p99, control.p99, tail_us),
        ] {
            if found.lower > control.upper + bound {
                faults.push(format!("{milliseconds} ms: {name} {:.1} us", found.point));
            }
        }
    }
    Ok((!faults.is_empty()).then(|| faults.join("; ")))
}

/// How far arrivals of an even stream are from even.
fn jitter(setting: &Setting) -> Result<Option<String>> {
    needed(setting)?;
    if !setting.kernel.jit {
        return Err(skip(
            "the sandbox has one processor for sender, receiver and pacer",
        ));
    }
    const PERIOD: Duration = Duration::from_micros(100);
    let plan = Plan {
        count: 20_000,
        interval: PERIOD,
        spin: true,
        ..Plan::default()
    };
    let measure = |bed: &Bed| -> Result<Quantiles> {
        let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
        ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
        let delays = trace.delays_us()?;
        let off = |delay: &f64| (delay - delays.median()).abs();
        let deviations = delays.sorted().iter().map(off).collect();
        Quantiles::of(&Sample::new(deviations)?)
    };
    let bed = Bed::new()?;
    let control = measure(&bed)?;
    let applied = setting.product.apply(&bed.left, "latency: 20ms", Pacer::User)?;
    let found = measure(&bed)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    figure!("10 000 packets/s, 20 ms: deviation from the median delay {found} us (p50 / p99); off {control}");
    Ok((found.p50.lower > control.p50.upper + 60.0)
        .then(|| format!("jitter {found} us, {control} without emulation")))
}

/// The pacer's threads, in /proc.
fn pacer_threads(applied: &Applied<'_>) -> Result<Vec<PathBuf>> {
    let mut threads = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{}/task", applied.pid()))? {
        let task = task?.path();
        // Others may end meanwhile.
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        if name.trim() == "perturb-pacer" {
            threads.push(task);
        }
    }
    ensure!(!threads.is_empty(), "perturb has no thread named perturb-pacer");
    Ok(threads)
}

/// Processor time of the pacer's threads so far, ns (`/proc/PID/task/TID/schedstat`).
fn pacer_time(applied: &Applied<'_>) -> Result<u64> {
    let mut sum = 0;
    for task in pacer_threads(applied)? {
        let text = std::fs::read_to_string(task.join("schedstat"))?;
        let time = text.split(' ').next().context("an empty schedstat")?;
        sum += time.parse::<u64>()?;
    }
    Ok(sum)
}

/// Scheduling policy of the pacer's threads (`/proc/PID/task/TID/stat`, field 41).
fn policies(applied: &Applied<'_>) -> Result<Vec<i32>> {
    let mut policies = Vec::new();
    for task in pacer_threads(applied)? {
        let text = std::fs::read_to_string(task.join("stat"))?;
        // The name, field 2, is in parentheses and has no white space.
        let policy = text.split(' ').nth(40).context("a short stat")?;
        policies.push(policy.parse()?);
    }
    Ok(policies)
}

/// A thread that never sleeps gives real-time priority up, before the kernel takes the processor away for 50 ms, and takes it back.
fn busy(setting: &Setting) -> Result<()> {
    needed(setting)?;
    if !setting.kernel.jit {
        return Err(skip(
            "the sandbox has one processor, which the polling thread would not share",
        ));
    }
    thrice(|| gives_up(setting))
}

/// What is wrong with how a thread that never sleeps takes turns. It is not busy where others have most of its processor.
fn gives_up(setting: &Setting) -> Result<Option<String>> {
    let bed = Bed::new()?;
    let latency = Duration::from_millis(20);
    // It polls for longer than packets are apart.
    let applied = setting
        .product
        .apply_with(&bed.left, "latency: 20ms", Pacer::User, &["--spin", "10ms"])?;
    let real_time = |policy: &i32| *policy == libc::SCHED_FIFO;
    let calm = policies(&applied)?;
    if !calm.iter().all(real_time) {
        return Err(skip("perturb may not have real-time priority here"));
    }
    let plan = Plan {
        count: 600,
        interval: Duration::from_millis(5),
        patience: latency + Duration::from_secs(1),
        ..Plan::default()
    };
    let sent = datagrams::send(&bed.left, &bed.right, &plan)?;
    ensure!(sent.lost().is_empty(), "{} lost", sent.lost().len());
    let held = applied.counters()?["held"].clone();
    if held["busy"].as_u64() == Some(0) {
        return Ok(Some(format!("it gave nothing up: {held}")));
    }
    for key in ["stalls", "stalled_ms", "longest_stall_ms"] {
        ensure!(held[key].is_number(), "status has no held.{key}: {held}");
    }
    // Four calm windows later it is real-time again.
    let deadline = clock::now() + 3_000_000_000;
    while !policies(&applied)?.iter().all(real_time) {
        if clock::now() > deadline {
            return Ok(Some("it does not take real-time priority back".into()));
        }
        thread::sleep(Duration::from_millis(50));
    }
    applied.stop()?;
    Ok(None)
}

/// The emulation learns the floor of its lateness, and shows it.
fn lead(setting: &Setting) -> Result<()> {
    needed(setting)?;
    let bed = Bed::new()?;
    let latency = Duration::from_millis(2);
    let applied = setting.product.apply(&bed.left, "latency: 2ms", Pacer::User)?;
    let delays = measure::delays(&bed, PACKETS, latency)?;
    let lead = applied.counters()?["lateness"]["lead_us"]
        .as_f64()
        .context("status has no lateness.lead_us")?;
    applied.nothing_unintended()?;
    applied.stop()?;
    let found = Quantiles::less(&delays, latency.as_secs_f64() * 1e6)?;
    figure!(
        "2 ms: error {found} us (p50 / p99), least {:.1}; lead {lead:.1} us",
        found.min
    );
    // The timer, the TAP and a wake-up take some time on any machine.
    ensure!(lead > 0.0, "nothing is made up for");
    ensure!(
        found.min >= -setting.early_us(),
        "a packet arrived {:.1} us early",
        -found.min
    );
    Ok(())
}

/// Buffers are judged by when packets should leave: those that leave late, because the pacer is kept from running for
/// longer than the buffer lasts, fill none.
fn lateness_drops_nothing(setting: &Setting) -> Result<()> {
    needed(setting)?;
    const BUFFER: Duration = Duration::from_millis(100);
    const STOP: Duration = Duration::from_millis(400);
    let bed = Bed::new()?;
    let applied = setting.product.apply_with(
        &bed.left,
        "bandwidth: 100Mbit/s\nlatency: 1ms\nbuffer: 100ms",
        Pacer::User,
        &["--lease", "10s"],
    )?;
    // Half of the bandwidth.
    let plan = Plan {
        count: 10_000,
        size: 1_250,
        burst: 5,
        interval: Duration::from_millis(1),
        patience: Duration::from_secs(2),
        ..Plan::default()
    };
    let trace = thread::scope(|scope| -> Result<_> {
        let stop = scope.spawn(|| -> Result<()> {
            for _ in 0..2 {
                thread::sleep(STOP);
                applied.signal(Signal::SIGSTOP)?;
                thread::sleep(STOP);
                applied.signal(Signal::SIGCONT)?;
            }
            Ok(())
        });
        let trace = datagrams::send(&bed.left, &bed.right, &plan);
        stop.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        trace
    })?;
    let report = applied.counters()?;
    applied.stop()?;
    // A sender that the machine holds up sends what it owes at once.
    let service = (plan.size as u64 + 100) * 80;
    let (mut free, mut most) = (0, 0);
    for &sent in &trace.sent {
        free = free.max(sent) + service;
        most = most.max(free - sent);
    }
    if Duration::from_nanos(most) > BUFFER {
        return Err(skip("this machine held the sender up"));
    }
    figure!(
        "stopped for {STOP:?} twice with a buffer of {BUFFER:?}: {} of {} lost; held {}",
        trace.lost().len(),
        plan.count,
        report["held"]
    );
    ensure!(
        trace.lost().is_empty(),
        "{} of {} were lost: {report}",
        trace.lost().len(),
        plan.count
    );
    ensure!(trace.reordered() == 0, "{} overtook others", trace.reordered());
    Ok(())
}

fn small_packets(setting: &Setting) -> Result<()> {
    thrice(|| {
        let sustained = sustained(setting)?;
        let slow = setting.kernel.jit && sustained < 20_000.0;
        Ok(slow.then(|| format!("only {sustained:.0} packets/s without loss")))
    })
}

/// How many small packets per second the user pacer holds for 20 ms without loss.
fn sustained(setting: &Setting) -> Result<f64> {
    needed(setting)?;
    const COUNT: usize = 20_000;
    let bed = Bed::new()?;
    let latency = Duration::from_millis(20);
    let applied = setting.product.apply(&bed.left, "latency: 20ms", Pacer::User)?;
    // A burst a millisecond keeps the thread from polling for the next departure meanwhile.
    let plan = Plan {
        count: COUNT,
        burst: 20,
        interval: Duration::from_millis(1),
        patience: latency + Duration::from_secs(2),
        // Waking up the receiver would be most of it, and is not the pacer's.
        receive_afterwards: true,
        ..Plan::default()
    };
    let before = pacer_time(&applied)?;
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    let each = (pacer_time(&applied)? - before) as f64 / COUNT as f64 / 1e3;
    if !trace.lost().is_empty() {
        figure!("{} of {COUNT} lost", trace.lost().len());
        return Ok(0.0);
    }
    let sustained = measure::sustained_rate(&bed, 1, latency, Duration::from_secs(1))?;
    let spread = measure::sustained_rate(&bed, 16, latency, Duration::from_secs(1))?;
    applied.stop()?;
    figure!(
        "64-byte datagrams, 20 ms: {sustained:.0}/s without loss, {spread:.0}/s of 16 flows; {each:.2} us of the pacer's processor time each, in \
         bursts of {} at 20 000/s",
        plan.burst
    );
    Ok(sustained)
}

/// iperf3 goes on after the lease, untouched.
fn stall(setting: &Setting, signal: Signal) -> Result<Option<String>> {
    needed(setting)?;
    const LEASE: Duration = Duration::from_secs(1);
    let (bed, before) = setting.bed()?;
    if bed.left.run("iperf3 --version").is_err() {
        return Err(skip("iperf3 is not installed"));
    }
    let applied = setting
        .product
        .apply_with(&bed.left, "latency: 20ms", Pacer::User, &["--lease", "1s"])?;
    let mut server = bed
        .right
        .command("iperf3")
        .args(["--server", "--one-off"])
        .stdout(Stdio::null())
        .spawn()?;
    thread::sleep(Duration::from_millis(300));
    let client = bed
        .left
        .command("iperf3")
        .args([
            "--client",
            &bed.right.v4.to_string(),
            "--time",
            "8",
            "--interval",
            "0.1",
        ])
        .args(["--json", "--reverse"])
        .stdout(Stdio::piped())
        .spawn()?;
    let start = clock::now();
    thread::sleep(Duration::from_secs(3));
    applied.signal(signal)?;
    let stalled = (clock::now() - start) as f64 / 1e9;
    let output = client.wait_with_output()?;
    let _ = server.kill();
    let _ = server.wait();
    let report: Value = serde_json::from_slice(&output.stdout).context("iperf3 printed no JSON")?;
    let intervals: Vec<(f64, f64)> = report["intervals"]
        .as_array()
        .with_context(|| format!("iperf3 measured nothing: {}", report["error"]))?
        .iter()
        .filter_map(|interval| {
            let sum = &interval["sum"];
            Some((sum["start"].as_f64()?, sum["bits_per_second"].as_f64()? / 1e6))
        })
        .collect();
    // The client connects a round trip or two after it has started.
    let silence = intervals
        .iter()
        .find(|&&(at, rate)| at > stalled + 0.1 && rate > 1.0)
        .map(|&(at, _)| at - stalled)
        .context("the stream did not go on")?;
    let last: Vec<f64> = intervals.iter().rev().take(10).map(|&(_, rate)| rate).collect();
    let afterwards = last.iter().sum::<f64>() / last.len() as f64;
    let held: Vec<f64> = intervals
        .iter()
        .filter(|&&(at, _)| at > stalled - 1.0 && at < stalled - 0.1)
        .map(|&(_, rate)| rate)
        .collect();
    let meanwhile = held.iter().sum::<f64>() / held.len().max(1) as f64;
    figure!(
        "{signal} to the pacer under iperf3, lease {LEASE:?}: goes on after {silence:.1} s; {meanwhile:.0} Mbit/s \
         before, {afterwards:.0} in the last second"
    );
    ensure!(
        afterwards > 1.0,
        "the stream is at {afterwards:.1} Mbit/s afterwards"
    );
    if signal == Signal::SIGKILL {
        applied.ended()?;
    }
    setting.product.clear(&bed.left)?;
    before.must_be_that_of(&bed.left)?;
    // What was held is lost to a killed pacer: TCP's own time-out comes on top of the lease.
    Ok((silence >= 3.0).then(|| format!("the stream paused for {silence:.1} s")))
}
