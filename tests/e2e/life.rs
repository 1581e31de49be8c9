//! Beginning, changing and ending an emulation; what happens when its process dies or hangs.

use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::{
    bed::{Bed, INTERFACE},
    datagrams::{self, Plan, Trace},
    product::Applied,
    remains::State,
};

use crate::harness::{Setting, Test, each, figure, moments, skip, slow, thrice};

pub(crate) const TESTS: &[Test] = &[
    each("life::ctrl_c_leaves_nothing", ctrl_c),
    each("life::for_ends_by_itself", for_a_time),
    each("life::clear_ends_it", clear),
    each("life::clear_meets_an_end", clear_meets_an_end),
    each("life::detach_lives_on", detach),
    each("life::an_interrupted_detach_leaves_nothing", detach_interrupted),
    each("life::held_packets_are_released_at_the_end", drain),
    each("life::a_thousand_hosts_by_address", thousand),
    each("life::live_update_loses_nothing", update),
    each("life::lease_of_a_stopped_process", stopped),
    each("life::a_killed_process", killed),
    each("life::foreign_parts_stay", foreign),
];

const LEASE: Duration = Duration::from_secs(1);

/// Whether all datagrams are delayed by `latency` now.
fn is_delayed(setting: &Setting, bed: &Bed, latency: Duration) -> Result<bool> {
    let plan = Plan {
        count: 5,
        patience: latency + Duration::from_millis(300),
        ..Plan::default()
    };
    let delays = datagrams::send(&bed.left, &bed.right, &plan)?.delays_us()?;
    Ok(delays.min() >= latency.as_secs_f64() * 1e6 - setting.early_us())
}

fn ctrl_c(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 20ms", setting.pacer)?;
    ensure!(
        is_delayed(setting, &bed, Duration::from_millis(20))?,
        "nothing is emulated"
    );
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    ensure!(
        !is_delayed(setting, &bed, Duration::from_millis(20))?,
        "still emulated"
    );
    Ok(())
}

fn for_a_time(setting: &Setting) -> Result<()> {
    const LATE: Duration = Duration::from_secs(6);
    thrice(|| {
        let (bed, before) = setting.bed()?;
        let applied =
            setting
                .product
                .apply_with(&bed.left, "latency: 20ms", setting.pacer, &["--for", "3s"])?;
        let start = Instant::now();
        let (status, said) = applied.ended()?;
        let took = start.elapsed();
        ensure!(status.success(), "{status}: {said}");
        before.must_be_that_of(&bed.left)?;
        Ok((took > LATE).then(|| format!("took {took:?}")))
    })
}

fn clear(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 20ms", setting.pacer)?;
    for _ in 0..2 {
        // The second finds nothing, which is no error.
        setting.product.clear(&bed.left)?;
    }
    before.must_be_that_of(&bed.left)?;
    let (status, said) = applied.ended()?;
    ensure!(
        status.success(),
        "the process that was cleared ended with {status}: {said}"
    );
    Ok(())
}

/// Whoever gives up waiting for `apply --detach`, at some moment of that, leaves nothing behind.
fn detach_interrupted(setting: &Setting) -> Result<()> {
    const MOMENTS: u64 = 10;
    let (bed, before) = setting.bed()?;
    let latency = Duration::from_millis(20);
    let profile = setting.product.profile("latency: 20ms")?;
    let mut interrupted = 0;
    for moment in moments(MOMENTS) {
        let mut child = bed
            .left
            .command(&setting.product.path)
            .arg("apply")
            .arg(&profile)
            .args(["--iface", INTERFACE, "--pacer", setting.pacer.name(), "--detach"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let messages = format!("/run/perturb/starting-{}", child.id());
        let start = Instant::now();
        let mut ended = child.try_wait()?;
        while ended.is_none() && !fs::exists(&messages)? {
            ensure!(start.elapsed() < Duration::from_secs(60), "it does not begin");
            thread::sleep(Duration::from_millis(1));
            ended = child.try_wait()?;
        }
        let status = match ended {
            Some(status) => status,
            None => {
                thread::sleep(Duration::from_millis(15 * moment));
                kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
                child.wait()?
            }
        };
        ensure!(!fs::exists(&messages)?, "{messages} is left");
        if status.success() {
            // It was there before the signal, and stays.
            ensure!(
                is_delayed(setting, &bed, latency)?,
                "success after {} ms, but nothing is emulated",
                15 * moment
            );
            setting.product.clear(&bed.left)?;
        } else {
            ensure!(status.code() == Some(130), "{status}");
            interrupted += 1;
        }
        before
            .must_be_that_of(&bed.left)
            .with_context(|| format!("interrupted after {} ms: {status}", 15 * moment))?;
    }
    ensure!(interrupted > 0, "no moment was early enough");
    Ok(())
}

/// An emulation that ends by itself, and `clear` at some moment of that: no error, and nothing is left.
fn clear_meets_an_end(setting: &Setting) -> Result<()> {
    const MOMENTS: u64 = 12;
    let (bed, before) = setting.bed()?;
    for moment in moments(MOMENTS) {
        let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
        applied.signal(Signal::SIGINT)?;
        thread::sleep(Duration::from_millis(8 * moment));
        setting.product.clear(&bed.left)?;
        let (status, said) = applied.ended()?;
        ensure!(status.success(), "{status}: {said}");
        before.must_be_that_of(&bed.left)?;
    }
    Ok(())
}

fn detach(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let profile = setting.product.profile("latency: 20ms")?;
    let profile = profile.to_string_lossy();
    let arguments = [
        "apply",
        &*profile,
        "--iface",
        INTERFACE,
        "--pacer",
        setting.pacer.name(),
        "--detach",
    ];
    let applied = setting.product.call(&bed.left, &arguments)?;
    ensure!(applied.code() == 0, "{applied:?}");
    ensure!(
        is_delayed(setting, &bed, Duration::from_millis(20))?,
        "nothing is emulated"
    );
    setting.product.clear(&bed.left)?;
    before.must_be_that_of(&bed.left)?;
    ensure!(
        !is_delayed(setting, &bed, Duration::from_millis(20))?,
        "still emulated"
    );
    Ok(())
}

/// The two hosts are two of 1024, whose paths are held at the switch or not.
fn thousand(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut text = String::from("topology: { kind: star, link: { latency: 10ms } }\nhosts:\n");
    for host in 1..=1024 {
        text += &format!("  n{host}: 10.78.{}.{}\n", host >> 8, host & 255);
    }
    let profile = setting.product.profile(&text)?;
    let profile = profile.to_string_lossy();
    for way in [&[][..], &["--coarse"]] {
        let pacer = setting.pacer.name();
        let arguments = [
            "apply", &*profile, "--iface", INTERFACE, "--pacer", pacer, "--detach",
        ];
        let arguments = [&arguments, way].concat();
        let applied = setting.product.call(&bed.left, &arguments)?;
        ensure!(applied.code() == 0, "{applied:?}");
        ensure!(
            is_delayed(setting, &bed, Duration::from_millis(20))?,
            "{way:?}: nothing is emulated"
        );
        setting.product.clear(&bed.left)?;
        before.must_be_that_of(&bed.left)?;
    }
    Ok(())
}

/// A stream while something happens to the emulation, told after a second.
fn stream(bed: &Bed, length: Duration, then: impl FnOnce() -> Result<()> + Send) -> Result<(Trace, u64)> {
    let interval = Duration::from_millis(2);
    let plan = Plan {
        count: (length.as_millis() / interval.as_millis()) as usize,
        interval,
        patience: Duration::from_secs(1),
        ..Plan::default()
    };
    thread::scope(|scope| {
        let event = scope.spawn(|| -> Result<u64> {
            thread::sleep(Duration::from_secs(1));
            then()?;
            Ok(perturb_tests::clock::now())
        });
        let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
        let at = event
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((trace, at))
    })
}

/// Ctrl-C while packets are held: they arrive all the same.
fn drain(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let drain = |may_be_lost: &dyn Fn(u64, u64) -> bool| {
        let applied = setting
            .product
            .apply(&bed.left, "latency: 300ms", setting.pacer)?;
        let mut end = 0;
        let (trace, _) = stream(&bed, Duration::from_secs(2), || {
            end = perturb_tests::clock::now();
            applied.stop()
        })?;
        figure!(
            "ended with 300 ms of packets held, by {}: {} of {} lost",
            setting.pacer.name(),
            trace.lost().len(),
            trace.sent.len()
        );
        let mut lost = trace.lost();
        lost.retain(|&number| !may_be_lost(trace.sent[number], end));
        ensure!(lost.is_empty(), "lost {lost:?}");
        Ok(())
    };
    if perturb_dataplane::attach::has_tcx() {
        drain(&|_, _| false)?;
        return before.must_be_that_of(&bed.left);
    }
    // The kernel itself drops what an interface is to send while its clsact qdisc goes. What was held for 300 ms has left by
    // then.
    const HELD: u64 = 250_000_000;
    drain(&|sent, end| sent > end + HELD)?;
    before.must_be_that_of(&bed.left)?;
    // Nothing goes where somebody else has made the qdisc.
    bed.left.run(&format!("tc qdisc add dev {INTERFACE} clsact"))?;
    let before = State::of(&bed.left)?;
    drain(&|_, _| false)?;
    before.must_be_that_of(&bed.left)
}

fn update(setting: &Setting) -> Result<()> {
    const LATE_MS: f64 = 100.0;
    thrice(|| {
        let last = last_of_old(setting)?;
        let fault = || format!("a datagram had the old latency {last:.0} ms after the change");
        Ok((last > LATE_MS).then(fault))
    })
}

/// When the last datagram was sent that had the latency of before a change, milliseconds after the change.
fn last_of_old(setting: &Setting) -> Result<f64> {
    let (bed, before) = setting.bed()?;
    let applied = setting
        .product
        .apply(&bed.left, "latency: 100ms", setting.pacer)?;
    let fresh = setting.product.profile("latency: 20ms")?;
    let length = Duration::from_millis(if slow() { 12_000 } else { 2_500 });
    let (trace, done) = stream(&bed, length, || {
        let updated = setting.product.call(
            &bed.left,
            &["apply", &fresh.to_string_lossy(), "--iface", INTERFACE],
        )?;
        ensure!(updated.code() == 0, "{updated:?}");
        Ok(())
    })?;
    ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
    let delays = trace.delays();
    let sent_and_delay = || {
        trace
            .sent
            .iter()
            .zip(&delays)
            .filter_map(|(&sent, delay)| Some((sent, (*delay)?)))
    };
    let least = |milliseconds: u64| milliseconds * 1_000_000 - (1e3 * setting.early_us()) as u64;
    let after = |sent: u64| (sent as f64 - done as f64) / 1e6;
    // The change took effect with the first datagram that was faster than the old latency.
    let first = sent_and_delay()
        .find(|&(_, delay)| delay < least(100))
        .context("no effect")?;
    let last = sent_and_delay()
        .rfind(|&(_, delay)| delay >= least(100))
        .context("the first profile had no effect")?;
    figure!(
        "live update by {}: in force {:.1} ms after the command ended, none of {} lost",
        setting.pacer.name(),
        after(first.0).max(0.0),
        delays.len()
    );
    ensure!(
        sent_and_delay().all(|(_, delay)| delay >= least(20)),
        "a datagram was faster than both profiles"
    );
    ensure!(
        applied.counters()?["updates"] == 1,
        "status does not count the change"
    );
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    Ok(after(last.0))
}

/// What happens to traffic when an emulation's process gets a signal.
struct Recovery {
    /// How long no datagram that was sent then got through untouched, milliseconds.
    silent_ms: f64,
    /// The share of later datagrams that did.
    untouched: f64,
}

impl Recovery {
    fn after(bed: &Bed, applied: &Applied<'_>, signal: Signal) -> Result<Self> {
        let (trace, at) = stream(bed, Duration::from_secs(4), || applied.signal(signal))?;
        let untouched = Duration::from_millis(15).as_nanos() as u64;
        let delays = trace.delays();
        let passed: Vec<u64> = trace
            .sent
            .iter()
            .zip(&delays)
            .filter(|&(&sent, delay)| sent > at && delay.is_some_and(|delay| delay < untouched))
            .map(|(&sent, _)| sent)
            .collect();
        let first = *passed.first().context("no datagram got through untouched")?;
        let after = trace.sent.iter().filter(|&&sent| sent >= first).count();
        let recovery = Self {
            silent_ms: (first - at) as f64 / 1e6,
            untouched: passed.len() as f64 / after as f64,
        };
        figure!(
            "{signal} to perturb apply, lease {LEASE:?}: untouched after {:.0} ms, {:.0} % from then on; {} of {} lost",
            recovery.silent_ms,
            100.0 * recovery.untouched,
            trace.lost().len(),
            delays.len()
        );
        Ok(recovery)
    }

    fn fault(&self) -> Option<String> {
        if self.silent_ms > 1_150.0 {
            Some(format!(
                "emulated for {:.0} ms without its controller",
                self.silent_ms
            ))
        } else if self.untouched < 0.95 {
            Some(format!(
                "only {:.0} % passed untouched afterwards",
                100.0 * self.untouched
            ))
        } else {
            None
        }
    }
}

fn leased<'a>(setting: &'a Setting, bed: &'a Bed) -> Result<Applied<'a>> {
    setting
        .product
        .apply_with(&bed.left, "latency: 20ms", setting.pacer, &["--lease", "1s"])
}

fn stopped(setting: &Setting) -> Result<()> {
    thrice(|| {
        let (bed, before) = setting.bed()?;
        let applied = leased(setting, &bed)?;
        let recovery = Recovery::after(&bed, &applied, Signal::SIGSTOP)?;
        // A stopped process cannot clean up: clear wakes it or does without it.
        setting.product.clear(&bed.left)?;
        before.must_be_that_of(&bed.left)?;
        Ok(recovery.fault())
    })
}

fn killed(setting: &Setting) -> Result<()> {
    thrice(|| {
        let (bed, before) = setting.bed()?;
        let applied = leased(setting, &bed)?;
        let recovery = Recovery::after(&bed, &applied, Signal::SIGKILL)?;
        applied.ended()?;
        setting.product.clear(&bed.left)?;
        before.must_be_that_of(&bed.left)?;
        Ok(recovery.fault())
    })
}

/// A root qdisc and a clsact filter that others made are there afterwards, and work meanwhile.
fn foreign(setting: &Setting) -> Result<()> {
    let bed = Bed::new()?;
    let left = &bed.left;
    left.run(&format!(
        "tc qdisc add dev {INTERFACE} root handle 7: pfifo limit 777"
    ))?;
    left.run(&format!("tc qdisc add dev {INTERFACE} clsact"))?;
    for side in ["ingress", "egress"] {
        let filter = format!("tc filter add dev {INTERFACE} {side} pref 5 matchall action ok");
        if left.run(&filter).is_err() {
            return Err(skip("this kernel has no matchall classifier with actions"));
        }
    }
    let before = State::of(left)?;
    let applied = setting.product.apply(left, "latency: 20ms", setting.pacer)?;
    let qdiscs = left.run(&format!("tc qdisc show dev {INTERFACE}"))?;
    ensure!(qdiscs.contains("limit 777"), "the root qdisc is {qdiscs}");
    applied.stop()?;
    before.must_be_that_of(left)
}
