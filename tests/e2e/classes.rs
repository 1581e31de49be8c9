//! Which packets cross which servers: the first class that matches.

use std::{fs, net::IpAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use perturb_tests::{
    bed::Family,
    datagrams::{self, Plan},
};
use serde_json::Value;

use crate::{
    harness::{Setting, Test, each, once, thrice},
    update::{delay, wait},
};

pub(crate) const TESTS: &[Test] = &[
    each("classes::first_match_wins", first_match),
    each("classes::arp_is_delayed", arp),
    each("classes::hosts_by_name", by_name),
    once("classes::private_hosts_by_name", private),
];

/// One class per kind of condition, each with a latency of its own; the order matters for packets that fit several.
const PROFILE: &str = "
servers:
  t10: { latency: 10ms }
  t20: { latency: 20ms }
  t30: { latency: 30ms }
  t40: { latency: 40ms }
  t50: { latency: 50ms }
  t60: { latency: 60ms }
  t70: { latency: 70ms }
  t80: { latency: 80ms }
classes:
  - { name: bypass, match: { protocol: udp, port: 9001 }, bypass: true }
  - { name: dscp, match: { dscp: ef }, egress: [t10] }
  - { name: mark, match: { fwmark: 0x2a }, egress: [t20] }
  - { name: prefix, match: { remote: 10.78.0.128/25 }, egress: [t30] }
  - { name: either-port, match: { port: 7000-7009 }, egress: [t40] }
  - { name: local-port, match: { protocol: udp, local_port: 8000 }, egress: [t50] }
  - { name: tcp, match: { protocol: tcp }, egress: [t60] }
  - { name: v6, match: { family: ipv6, source: 'fd78::/64' }, egress: [t70] }
  - { name: rest, match: {}, egress: [t80] }
";

/// A packet and the class it belongs to.
struct Case {
    class: &'static str,
    milliseconds: u64,
    plan: Plan,
}

fn cases(second: IpAddr) -> Vec<Case> {
    let plan = Plan {
        count: 5,
        patience: Duration::from_secs(2),
        ..Plan::default()
    };
    let case = |class, milliseconds, plan| Case {
        class,
        milliseconds,
        plan,
    };
    vec![
        case(
            "bypass",
            0,
            Plan {
                port: 9001,
                ..plan.clone()
            },
        ),
        case(
            "bypass",
            0,
            Plan {
                port: 9001,
                tos: 46 << 2,
                ..plan.clone()
            },
        ),
        case(
            "dscp",
            10,
            Plan {
                tos: 46 << 2,
                ..plan.clone()
            },
        ),
        case(
            "dscp",
            10,
            Plan {
                tos: 46 << 2,
                family: Family::V6,
                ..plan.clone()
            },
        ),
        case(
            "dscp",
            10,
            Plan {
                tos: 46 << 2,
                mark: 42,
                port: 7005,
                ..plan.clone()
            },
        ),
        case(
            "mark",
            20,
            Plan {
                mark: 42,
                ..plan.clone()
            },
        ),
        case(
            "mark",
            20,
            Plan {
                mark: 42,
                port: 7005,
                ..plan.clone()
            },
        ),
        case(
            "prefix",
            30,
            Plan {
                to: Some(second),
                ..plan.clone()
            },
        ),
        case(
            "prefix",
            30,
            Plan {
                to: Some(second),
                port: 7005,
                ..plan.clone()
            },
        ),
        case(
            "either-port",
            40,
            Plan {
                port: 7000,
                ..plan.clone()
            },
        ),
        case(
            "either-port",
            40,
            Plan {
                source_port: 7009,
                ..plan.clone()
            },
        ),
        case(
            "either-port",
            40,
            Plan {
                source_port: 7009,
                family: Family::V6,
                ..plan.clone()
            },
        ),
        case(
            "local-port",
            50,
            Plan {
                source_port: 8000,
                ..plan.clone()
            },
        ),
        case(
            "v6",
            70,
            Plan {
                family: Family::V6,
                ..plan.clone()
            },
        ),
        // At egress the local port is the source port: this one is the remote's.
        case(
            "rest",
            80,
            Plan {
                port: 8000,
                ..plan.clone()
            },
        ),
        case(
            "rest",
            80,
            Plan {
                port: 7010,
                ..plan.clone()
            },
        ),
        case("rest", 80, Plan { mark: 43, ..plan }),
    ]
}

fn packets(report: &Value, class: &str) -> u64 {
    let classes = report["classes"].as_array().into_iter().flatten();
    let of_class = classes.filter(|entry| entry["name"] == class);
    of_class
        .filter_map(|entry| entry["egress"]["packets"].as_u64())
        .sum()
}

fn first_match(setting: &Setting) -> Result<()> {
    const LATE_US: f64 = 10_000.0;
    thrice(|| {
        let (late, case) = latest(setting)?;
        Ok((late >= LATE_US).then_some(case))
    })
}

/// By how much the best datagram of the worst case was late, microseconds, and that case. None is early, or in another
/// class.
fn latest(setting: &Setting) -> Result<(f64, String)> {
    let (bed, before) = setting.bed()?;
    let second = bed.address_of_right("10.78.0.130".parse()?)?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let mut latest = (0.0, String::new());
    for Case {
        class,
        milliseconds,
        plan,
    } in cases(second.into())
    {
        let before = applied.counters()?;
        let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
        let delays = trace.delays_us()?;
        let shown = format!(
            "{class}: {plan:?}: delays {:.0} to {:.0} us",
            delays.min(),
            delays.max()
        );
        ensure!(trace.lost().is_empty(), "{shown}: lost {:?}", trace.lost());
        let late = delays.min() - milliseconds as f64 * 1e3;
        ensure!(late >= -setting.early_us(), "{shown}");
        let after = applied.counters()?;
        let counted = |class| packets(&after, class) - packets(&before, class);
        ensure!(
            counted(class) == plan.count as u64,
            "{shown}: {} counted",
            counted(class)
        );
        if late > latest.0 {
            latest = (late, shown);
        }
    }
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    Ok(latest)
}

/// The first datagram waits for the neighbor's hardware address: a request and a reply of 50 ms each.
fn arp(setting: &Setting) -> Result<()> {
    const LATE_US: f64 = 160_000.0;
    thrice(|| {
        let took = resolved(setting)?;
        Ok((took >= LATE_US).then(|| format!("the datagram took {took:.0} us")))
    })
}

/// How long a datagram takes whose neighbor is unknown, microseconds.
fn resolved(setting: &Setting) -> Result<f64> {
    let (bed, before) = setting.bed()?;
    let profile = "
servers: { slow: { latency: 50ms } }
classes: [{ name: arp, match: { ethertype: arp }, egress: [slow], ingress: [slow] }]
";
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    bed.forget_neighbor()?;
    let plan = Plan {
        count: 1,
        patience: Duration::from_secs(2),
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    let delay = trace.delays()[0].context("nothing arrived")?;
    let report = applied.counters()?;
    applied.nothing_unintended()?;
    applied.stop()?;
    let took = delay as f64 / 1e3;
    ensure!(
        took >= 100_000.0 - 2.0 * setting.early_us(),
        "the datagram took {took:.0} us"
    );
    let arp = &report["classes"][0];
    ensure!(
        arp["egress"]["packets"] == 1 && arp["ingress"]["packets"] == 1,
        "counted {arp}"
    );
    before.must_be_that_of(&bed.left)?;
    Ok(took)
}

/// What programs that this thread starts find in /etc/hosts; undone when it is dropped.
pub(crate) struct Hosts(tempfile::NamedTempFile);

impl Hosts {
    const PATH: &str = "/etc/hosts";

    pub(crate) fn begin() -> Result<Self> {
        let hosts = Self(tempfile::NamedTempFile::new()?);
        hosts.know(&[])?;
        let none = None::<&str>;
        mount(Some(hosts.0.path()), Self::PATH, none, MsFlags::MS_BIND, none)
            .context("mounting on /etc/hosts")?;
        Ok(hosts)
    }

    pub(crate) fn know(&self, entries: &[(IpAddr, &str)]) -> Result<()> {
        let lines = entries
            .iter()
            .map(|(address, name)| format!("{address} {name}\n"));
        fs::write(self.0.path(), lines.collect::<String>())?;
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // It may not have been mounted.
        let _ = umount2(Path::new(Self::PATH), MntFlags::MNT_DETACH);
    }
}

/// A class follows its host to another address, counts that, and stays with the last one if there is none.
fn by_name(setting: &Setting) -> Result<()> {
    const NAME: &str = "db.perturb.test";
    let (bed, before) = setting.bed()?;
    let profile = format!(
        "servers: {{ up: {{ latency: 40ms }} }}\nclasses: [{{ name: db, match: {{ host: {NAME} }}, egress: [up] }}]"
    );
    let hosts = Hosts::begin()?;
    let path = setting.product.profile(&profile)?;
    let path = path.to_string_lossy();
    let refused = setting
        .product
        .call(&bed.left, &["apply", &path, "--iface", "lo"])?;
    ensure!(
        refused.code() == 2 && refused.stderr.contains(&format!("host `{NAME}` has no address")),
        "{refused:?}"
    );
    let checked = setting.product.call(&bed.left, &["check", &path])?;
    ensure!(checked.code() == 0, "check asks a resolver: {checked:?}");

    hosts.know(&[("192.0.2.9".parse()?, NAME)])?;
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    ensure!(delay(&bed)? < 30.0, "another host is emulated");
    let here = bed.right.address(Family::V4);
    hosts.know(&[(here, NAME)])?;
    wait("the class follows its host", || Ok(delay(&bed)? > 30.0))?;
    let host = |key: &str| -> Result<Value> { Ok(applied.counters()?["named_hosts"][NAME][key].clone()) };
    ensure!(
        host("changes")? == 1 && host("addresses")? == Value::from(vec![here.to_string()]),
        "{}",
        applied.counters()?
    );
    ensure!(applied.counters()?["updates"] == 0, "the profile is the same");
    hosts.know(&[])?;
    wait("the loss of the name is counted", || {
        Ok(host("failures")?.as_u64() > Some(0))
    })?;
    ensure!(delay(&bed)? > 30.0, "the address is gone with the name");
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// Private hosts know each other's names, and no others.
fn private(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let run = |name: &str| {
        let profile = format!(
            "servers: {{ up: {{ latency: 40ms }} }}\nclasses: [{{ match: {{ host: {name} }}, egress: [up] }}]"
        );
        let path = setting.product.profile(&profile)?;
        let ping = ["--", "ping", "-c3", "-i0.2", "-q", "h2"];
        let arguments = ["run", &*path.to_string_lossy(), "--hosts", "3"];
        setting.product.call(&bed.left, &[&arguments[..], &ping].concat())
    };
    for (name, emulated) in [("h2", true), ("h3", false)] {
        let called = run(name)?;
        let mean = called
            .stdout
            .lines()
            .find_map(|line| line.split('/').nth(4)?.parse::<f64>().ok());
        let mean = mean.with_context(|| format!("no mean: {called:?}"))?;
        ensure!((mean > 35.0) == emulated, "{name}: {mean} ms");
    }
    let refused = run("h4")?;
    ensure!(
        refused.code() == 2 && refused.stderr.contains("no private host `h4`"),
        "{refused:?}"
    );
    before.must_be_that_of(&bed.left)
}
