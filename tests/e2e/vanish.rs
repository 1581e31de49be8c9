//! What an emulation needs is deleted, renamed, moved, set down or detached by somebody else: it ends loudly and traffic
//! flows, or goes on where the interface comes back (`--follow`).

use std::{
    os::fd::AsRawFd as _,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use perturb_tests::{
    bed::{Bed, INTERFACE},
    datagrams::{self, Plan},
    product::{Applied, Pacer},
    remains::State,
};

use crate::{
    harness::{Setting, Test, each, moments, skip},
    update::wait,
};

pub(crate) const TESTS: &[Test] = &[
    each("vanish::devices_of_perturb", devices),
    each("vanish::programs_of_perturb", programs),
    each("vanish::interface_deleted", deleted),
    each("vanish::interface_renamed", renamed),
    each("vanish::interface_moved", moved),
    each("vanish::follow_goes_on", follow),
    each("vanish::follow_survives_a_flap", flap).long(),
    each("vanish::follow_leaves_nothing_open", descriptors).long(),
    each("vanish::follow_refuses_what_apply_refuses", unfit),
    each("vanish::apply_knows_another_interface", another),
];

/// The lease of these emulations: traffic must flow within it.
const LEASE: Duration = Duration::from_secs(10);
const LATENCY: Duration = Duration::from_millis(30);

fn applied<'a>(setting: &'a Setting, bed: &'a Bed, more: &[&str]) -> Result<Applied<'a>> {
    setting
        .product
        .apply_with(&bed.left, "latency: 30ms", setting.pacer, more)
}

/// Delays of a few datagrams, or `None` for each that was lost.
fn delays(bed: &Bed) -> Result<Vec<Option<Duration>>> {
    let plan = Plan {
        count: 5,
        patience: Duration::from_millis(500),
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    Ok(trace
        .delays()
        .into_iter()
        .map(|delay| delay.map(Duration::from_nanos))
        .collect())
}

/// Ends with exit code 1 well within the lease, and says all `words`.
fn must_end_loudly(applied: Applied<'_>, words: &[&str]) -> Result<()> {
    let start = Instant::now();
    let (status, said) = applied.ended()?;
    ensure!(start.elapsed() < LEASE, "it took {:?} to end", start.elapsed());
    ensure!(status.code() == Some(1), "{status}: {said}");
    for word in words {
        ensure!(said.contains(word), "the message does not say {word:?}: {said}");
    }
    Ok(())
}

fn must_flow(bed: &Bed) -> Result<()> {
    let delays = delays(bed)?;
    ensure!(
        delays
            .iter()
            .all(|delay| delay.is_some_and(|delay| delay < LATENCY)),
        "traffic does not pass untouched: {delays:?}"
    );
    Ok(())
}

/// perturb's own devices in the left host, by name.
fn own_devices(bed: &Bed) -> Result<Vec<String>> {
    let links = bed.left.run("ip -oneline link show")?;
    Ok(links
        .lines()
        .filter_map(|line| line.split(": ").nth(1)?.split('@').next())
        .filter(|name| name.starts_with("pt"))
        .map(Into::into)
        .collect())
}

fn index(bed: &Bed) -> Result<String> {
    let line = bed.left.run(&format!("ip -oneline link show dev {INTERFACE}"))?;
    Ok(line.split(':').next().context("no index")?.into())
}

/// Every device of perturb's, deleted, set down, renamed and moved.
fn devices(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied_once = applied(setting, &bed, &[])?;
    let names = own_devices(&bed)?;
    applied_once.stop()?;
    ensure!(names.len() >= 3, "perturb's devices are {names:?}");
    let right = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        bed.right.namespace.as_raw_fd()
    );
    let ways = [
        ("ip link del NAME", "was deleted"),
        ("ip link set NAME down", "was set down"),
        ("ip link set NAME netns RIGHT", "was moved"),
    ];
    for name in &names {
        for (way, word) in ways {
            let applied = applied(setting, &bed, &[])?;
            ensure!(delays(&bed)?.iter().all(Option::is_some), "datagrams were lost");
            bed.left
                .run(&way.replace("NAME", name).replace("RIGHT", &right))?;
            // With one end of a pair the other one goes.
            let found = if word == "was deleted" { "pt" } else { name };
            must_end_loudly(applied, &[found, word, INTERFACE, "lost"])
                .with_context(|| format!("{name}: {way}"))?;
            must_flow(&bed)?;
            if way.contains("netns") {
                // It is not in the namespace where perturb made it any more.
                let _ = bed.right.run(&format!("ip link del {name}"));
            }
            before
                .must_be_that_of(&bed.left)
                .with_context(|| format!("{name}: {way}"))?;
        }
    }
    Ok(())
}

/// Programs that somebody takes off.
fn programs(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = applied(setting, &bed, &[])?;
    if !bed
        .left
        .run(&format!("tc qdisc show dev {INTERFACE}"))?
        .contains("clsact")
    {
        applied.stop()?;
        return Err(skip(
            "on this kernel perturb's programs are not at the clsact qdisc",
        ));
    }
    bed.left.run(&format!("tc qdisc del dev {INTERFACE} clsact"))?;
    must_end_loudly(applied, &[INTERFACE, "perturb_egress"])?;
    must_flow(&bed)?;
    before.must_be_that_of(&bed.left)
}

/// Deletes the left host's interface, and makes another one of its name.
fn make_again(bed: &Bed) -> Result<()> {
    bed.left.run(&format!("ip link del {INTERFACE}"))?;
    bed.wire()
}

fn deleted(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = applied(setting, &bed, &[])?;
    make_again(&bed)?;
    must_end_loudly(applied, &[INTERFACE, "was deleted", "--follow"])?;
    must_flow(&bed)?;
    let before = State::of(&bed.left)?;
    // The new one can be emulated.
    let applied = self::applied(setting, &bed, &[])?;
    ensure!(is_emulated(&bed)?, "nothing is emulated on the new interface");
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

fn is_emulated(bed: &Bed) -> Result<bool> {
    // A timer that is less late than before lets the fq pacer's packets go a little early.
    let least = LATENCY - Duration::from_millis(1);
    Ok(delays(bed)?
        .iter()
        .all(|delay| delay.is_some_and(|delay| delay >= least)))
}

fn renamed(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = applied(setting, &bed, &[])?;
    // Older kernels rename no interface that is up.
    bed.left.run(&format!("ip link set {INTERFACE} down"))?;
    bed.left.run(&format!("ip link set {INTERFACE} name lan7"))?;
    must_end_loudly(applied, &[INTERFACE, "renamed to lan7"])?;
    bed.left.run(&format!("ip link set lan7 name {INTERFACE}"))?;
    bed.join()?;
    must_flow(&bed)?;
    before.must_be_that_of(&bed.left)
}

fn moved(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = applied(setting, &bed, &[])?;
    let other = Bed::new()?;
    let there = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        other.left.namespace.as_raw_fd()
    );
    // The place has an interface of that name.
    other.left.run(&format!("ip link set {INTERFACE} down"))?;
    other.left.run(&format!("ip link set {INTERFACE} name other"))?;
    bed.left.run(&format!("ip link set {INTERFACE} netns {there}"))?;
    must_end_loudly(applied, &[INTERFACE, "moved to another network namespace"])?;
    ensure!(own_devices(&bed)?.is_empty(), "devices are left");
    let qdiscs = other.left.run(&format!("tc qdisc show dev {INTERFACE}"))?;
    ensure!(!qdiscs.contains("clsact"), "programs went along: {qdiscs}");
    Ok(())
}

fn follow(setting: &Setting) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let (bed, _) = setting.bed()?;
    let applied = applied(setting, &bed, &["--follow"])?;
    for _ in 0..2 {
        let old = index(&bed)?;
        bed.left.run(&format!("ip link del {INTERFACE}"))?;
        let start = Instant::now();
        while applied.counters()?["lost"][0] != INTERFACE {
            ensure!(start.elapsed() < PATIENCE, "status does not say what is lost");
            thread::sleep(Duration::from_millis(20));
        }
        let left = own_devices(&bed)?;
        ensure!(
            left.is_empty(),
            "devices of the lost interface are left: {left:?}"
        );
        bed.wire()?;
        ensure!(index(&bed)? != old, "the new interface has the old one's index");
        let start = Instant::now();
        while !is_emulated(&bed)? {
            ensure!(start.elapsed() < PATIENCE, "the new interface is not emulated");
        }
        ensure!(
            applied.counters()?["lost"].is_null(),
            "status says that it is lost"
        );
    }
    applied.stop()?;
    ensure!(own_devices(&bed)?.is_empty(), "devices are left");
    must_flow(&bed)
}

fn wait_until_emulated(bed: &Bed) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let start = Instant::now();
    while !is_emulated(bed)? {
        ensure!(start.elapsed() < PATIENCE, "the new interface is not emulated");
    }
    Ok(())
}

/// The interface goes and comes, and goes again while perturb sets the new one up: at every moment of that.
fn flap(setting: &Setting) -> Result<()> {
    const MOMENTS: u64 = 40;
    let (bed, _) = setting.bed()?;
    let applied = applied(setting, &bed, &["--follow"])?;
    for moment in moments(MOMENTS) {
        make_again(&bed)?;
        // perturb looks for it twice a second, and the set-up takes some tens of milliseconds.
        thread::sleep(Duration::from_millis(37 * moment % 700));
    }
    wait_until_emulated(&bed)?;
    wait("status loses nothing", || {
        Ok(applied.counters()?["lost"].is_null())
    })?;
    applied.stop()?;
    ensure!(own_devices(&bed)?.is_empty(), "devices are left");
    must_flow(&bed)
}

/// What perturb has open stays the same, however often the interface is made again: the handles of its devices, the sockets that
/// read what they drop, and those that hear of changes.
fn descriptors(setting: &Setting) -> Result<()> {
    const TIMES: u64 = 20;
    let (bed, _) = setting.bed()?;
    let applied = applied(setting, &bed, &["--follow"])?;
    let mut fewest = usize::MAX;
    for _ in moments(TIMES) {
        make_again(&bed)?;
        wait_until_emulated(&bed)?;
        wait("status loses nothing", || {
            Ok(applied.counters()?["lost"].is_null())
        })?;
        // It reads its record twice a second, which is open for a moment.
        let mut now = open(&applied)?;
        let closed = wait("nothing is open beside what was open before", || {
            now = open(&applied)?;
            Ok(now.len() <= fewest)
        });
        closed.with_context(|| format!("{fewest} files were open, and now {}: {now:?}", now.len()))?;
        fewest = now.len();
    }
    applied.stop()?;
    ensure!(own_devices(&bed)?.is_empty(), "devices are left");
    must_flow(&bed)
}

/// What a process has open.
fn open(applied: &Applied<'_>) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fd", applied.pid()))? {
        // One that was closed meanwhile is not open.
        if let Ok(target) = std::fs::read_link(entry?.path()) {
            all.push(target);
        }
    }
    all.sort();
    Ok(all)
}

/// What comes back under the name may be something that cannot be emulated: perturb says so, and waits for another one.
fn unfit(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = applied(setting, &bed, &["--follow"])?;
    bed.left.run(&format!("ip link del {INTERFACE}"))?;
    if bed
        .left
        .run(&format!("ip tuntap add dev {INTERFACE} mode tun"))
        .is_err()
    {
        return Err(skip("this machine has no /dev/net/tun"));
    }
    wait("the interface is lost", || {
        Ok(applied.counters()?["lost"][0] == INTERFACE)
    })?;
    // Twice as long as perturb needs to look at what has come.
    thread::sleep(Duration::from_secs(2));
    ensure!(
        applied.counters()?["lost"][0] == INTERFACE,
        "a device without Ethernet header is emulated"
    );
    ensure!(own_devices(&bed)?.is_empty(), "it got devices");
    make_again(&bed)?;
    wait_until_emulated(&bed)?;
    applied.signal(nix::sys::signal::Signal::SIGTERM)?;
    let (status, said) = applied.ended()?;
    ensure!(status.success(), "{status}: {said}");
    ensure!(
        said.matches("no Ethernet header").count() == 1,
        "it is not said once why the device is refused: {said}"
    );
    ensure!(own_devices(&bed)?.is_empty(), "devices are left");
    must_flow(&bed)
}

/// The controller is stopped, so that it cannot notice that the interface is another one: no other command may believe that
/// the old emulation is that of the new interface.
fn another(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = applied(setting, &bed, &[])?;
    applied.signal(nix::sys::signal::Signal::SIGSTOP)?;
    make_again(&bed)?;
    let profile = setting.product.profile("latency: 5ms")?;
    let arguments = ["apply", &*profile.to_string_lossy(), "--iface", INTERFACE];
    let called = setting.product.call(&bed.left, &arguments)?;
    if called.code() != 1 {
        bail!("apply on another interface of that name: {called:?}");
    }
    for word in ["is not the interface", "perturb clear"] {
        ensure!(
            called.stderr.contains(word),
            "the message does not say {word:?}: {}",
            called.stderr
        );
    }
    setting.product.clear(&bed.left)?;
    ensure!(own_devices(&bed)?.is_empty(), "devices are left");
    let (status, said) = applied.ended()?;
    ensure!(
        said.contains("was deleted") || status.success(),
        "{status}: {said}"
    );
    // Now it can be emulated.
    let pacer: Pacer = setting.pacer;
    let applied = setting.product.apply(&bed.left, "latency: 30ms", pacer)?;
    ensure!(is_emulated(&bed)?, "nothing is emulated on the new interface");
    applied.stop()
}
