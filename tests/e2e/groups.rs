//! Groups and the matrix between them: what lies between each two hosts, and in which direction.

use std::{collections::BTreeMap, fs, net::IpAddr};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::{
    bed::{Bed, Family, Host, INTERFACE},
    datagrams::{self, Plan},
};
use serde_json::Value;

use crate::{
    classes::Hosts,
    harness::{Setting, Test, each, figure},
    update::wait,
};

pub(crate) const TESTS: &[Test] = &[
    each("groups::hosts_of_a_run_are_as_far_as_the_matrix_says", run),
    each("groups::a_machine_delays_what_it_sends", sends),
    each("groups::a_machine_alone_delays_both_ways", alone),
    each("groups::an_interface_is_its_networks", behind),
    each("groups::a_host_moves_into_a_group", moves),
];

/// Two regions of two hosts, and one of one; no pair is as far as another, and no way as long as back.
const REGIONS: [(&str, &[u32]); 3] = [("eu", &[1, 4]), ("us", &[2, 5]), ("asia", &[3])];
const TABLE: &str = "from,to,latency [ms]\neu,us,20\nus,eu,27\neu,asia,41\nasia,eu,44\nus,asia,61\nasia,us,58\neu,eu,3\nus,us,5\n";

/// One way, ms; nothing inside of asia, which has one host.
fn latency(from: &str, to: &str) -> Result<f64> {
    let row = TABLE
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{from},{to},")));
    Ok(row.context("no such pair")?.parse()?)
}

fn region(host: u32) -> Result<&'static str> {
    let mut regions = REGIONS.iter();
    let found = regions.find(|(_, hosts)| hosts.contains(&host));
    Ok(found.context("no such host")?.0)
}

fn run(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let directory = tempfile::TempDir::with_prefix("perturb-groups-")?;
    let table = directory.path().join("regions.csv");
    fs::write(&table, TABLE)?;
    let groups = REGIONS.map(|(name, hosts)| {
        let hosts: Vec<String> = hosts.iter().map(|host| format!("h{host}")).collect();
        format!("  {name}: {{ host: [{}] }}\n", hosts.join(", "))
    });
    // `here` is of a machine, and none of these hosts is it.
    let matrix = format!("{{ file: {}, here: us }}", table.display());
    let profile = format!("groups:\n{}matrix: {matrix}\n", groups.concat());
    let path = setting.product.profile(&profile)?;
    let report = directory.path().join("report.json");
    // Each host pings those behind it, by IPv4 and IPv6.
    let script = "for from in 1 2 3 4; do for to in 2 3 4 5; do test $to -gt $from && for family in 4 6; do \
                  set -- $(perturb on h$from -- ping -$family -c 4 -i 0.2 -q h$to | tail -n 1 | tr / ' '); echo $from $to $7; \
                  done; done; done; true";
    let arguments = [
        "run",
        "--pacer",
        setting.pacer.name(),
        "--hosts",
        "5",
        "--report",
        &*report.to_string_lossy(),
        &*path.to_string_lossy(),
        "--",
        "sh",
        "-c",
        script,
    ];
    let called = setting.product.call(&bed.left, &arguments)?;
    ensure!(called.code() == 0, "{called:?}");
    let mut times: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
    for line in called.stdout.lines() {
        let mut words = line.split_whitespace();
        let mut number = || {
            words
                .next()
                .context("a line ends too early")
                .map(str::parse::<f64>)
        };
        let (from, to, least) = (number()??, number()??, number()??);
        times.entry((from as u32, to as u32)).or_default().push(least);
    }
    ensure!(
        times.len() == 10 && times.values().all(|times| times.len() == 2),
        "{called:?}"
    );
    let mut worst = 0.0f64;
    for ((from, to), times) in times {
        let (one, other) = (region(from)?, region(to)?);
        let expected = latency(one, other)? + latency(other, one)?;
        for least in times {
            worst = worst.max((least - expected).abs());
            ensure!(
                least > expected - 2.0 * setting.early_us() / 1e3 && least < expected + 3.0,
                "h{from} in {one} to h{to} in {other}: {least} ms and not {expected}: {called:?}"
            );
        }
    }
    figure!("round trips are at most {worst:.3} ms beside the matrix");
    // Each way by itself, as the report has it: four requests or answers by each protocol, of so many pairs, delayed where they
    // are sent.
    let report: Value = serde_json::from_slice(&fs::read(&report)?)?;
    let classes = report["classes"].as_array().context("no classes")?;
    for (from, to, pairs) in [
        ("eu", "eu", 2),
        ("eu", "us", 4),
        ("us", "eu", 4),
        ("eu", "asia", 2),
        ("asia", "eu", 2),
        ("us", "asia", 2),
        ("asia", "us", 2),
        ("us", "us", 2),
    ] {
        let name = format!("{from}-to-{to}");
        let class = classes.iter().find(|class| class["name"] == *name);
        let class = class.with_context(|| format!("no class {name}: {report}"))?;
        let sent = class["egress"]["packets"].as_u64().unwrap_or(0);
        let delays = ["egress", "ingress"].map(|direction| class[direction]["mean_delay_us"].as_f64());
        let expected = latency(from, to)? * 1e3;
        ensure!(sent >= 8 * pairs, "{class}");
        ensure!(
            delays == [Some(expected), Some(0.0)],
            "{class}: not {expected} us"
        );
    }
    before.must_be_that_of(&bed.left)
}

/// The smallest delay of some datagrams, ms.
fn delay(from: &Host, to: &Host, family: Family) -> Result<f64> {
    let plan = Plan {
        count: 5,
        family,
        ..Plan::default()
    };
    Ok(datagrams::send(from, to, &plan)?.delays_us()?.min() / 1e3)
}

/// Whether a delay is one of so many ms.
fn is(setting: &Setting, delay: f64, expected: f64) -> bool {
    delay > expected - setting.early_us() / 1e3 && delay < expected + 3.0
}

/// A profile with the two hosts of a bed in groups by their addresses.
fn profile(bed: &Bed, table: &str, keys: &str) -> String {
    let prefixes = |host: &Host| {
        let addresses = [Family::V4, Family::V6].map(|family| format!("\"{}\"", host.address(family)));
        addresses.join(", ")
    };
    format!(
        "groups:\n  left: {{ prefix: [{}] }}\n  right: {{ prefix: [{}] }}\nmatrix: {{ file: {table}, {keys} }}\n",
        prefixes(&bed.left),
        prefixes(&bed.right)
    )
}

/// Applies a matrix on the left host; delays to the right, and back.
fn applied(setting: &Setting, keys: &str) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut table = tempfile::Builder::new().suffix(".csv").tempfile()?;
    std::io::Write::write_all(&mut table, b"[us],left,right\nleft,,40000\nright,70ms,\n")?;
    let profile = profile(&bed, &table.path().to_string_lossy(), keys);
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let back = if keys.contains("here") { 70.0 } else { 0.0 };
    for family in [Family::V4, Family::V6] {
        let there = delay(&bed.left, &bed.right, family)?;
        let back_again = delay(&bed.right, &bed.left, family)?;
        ensure!(
            is(setting, there, 40.0) && is(setting, back_again, back),
            "{there} ms there, {back_again} ms back"
        );
    }
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

fn sends(setting: &Setting) -> Result<()> {
    applied(setting, "symmetric: false")
}

fn alone(setting: &Setting) -> Result<()> {
    applied(setting, "here: left")
}

/// A group is all that an interface has addresses of, in both families.
fn behind(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut table = tempfile::Builder::new().suffix(".csv").tempfile()?;
    std::io::Write::write_all(&mut table, b"from,to,latency\nlan,lan,40ms\n")?;
    let profile = |interface: &str| {
        let table = table.path().display();
        format!("groups: {{ lan: {{ interface: {interface} }} }}\nmatrix: {{ file: {table}, here: lan }}\n")
    };
    for (interface, why) in [("nowhere0", "no such interface"), ("lo", "has no network")] {
        let path = setting.product.profile(&profile(interface))?;
        let arguments = ["apply", &*path.to_string_lossy(), "--iface", INTERFACE];
        if interface == "lo" && bed.left.run("ip -o addr show dev lo")?.contains("inet") {
            continue;
        }
        let refused = setting.product.call(&bed.left, &arguments)?;
        ensure!(refused.code() == 2 && refused.stderr.contains(why), "{refused:?}");
    }
    let applied = setting
        .product
        .apply(&bed.left, &profile(INTERFACE), setting.pacer)?;
    for family in [Family::V4, Family::V6] {
        let there = delay(&bed.left, &bed.right, family)?;
        let back = delay(&bed.right, &bed.left, family)?;
        ensure!(
            is(setting, there, 40.0) && is(setting, back, 40.0),
            "{there} ms there, {back} ms back"
        );
    }
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// A member by its name is looked up again, as the host of a class is.
fn moves(setting: &Setting) -> Result<()> {
    const NAME: &str = "db.perturb.test";
    let (bed, before) = setting.bed()?;
    let mut table = tempfile::Builder::new().suffix(".csv").tempfile()?;
    std::io::Write::write_all(&mut table, b"from,to,latency\nnear,far,40ms\n")?;
    let left = bed.left.address(Family::V4);
    let profile = format!(
        "groups: {{ near: {{ prefix: {left} }}, far: {{ host: {NAME} }} }}\nmatrix: {{ file: {}, symmetric: true, here: near }}\n",
        table.path().display()
    );
    let hosts = Hosts::begin()?;
    let elsewhere: IpAddr = "192.0.2.9".parse()?;
    hosts.know(&[(elsewhere, NAME)])?;
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let now = || delay(&bed.left, &bed.right, Family::V4);
    ensure!(now()? < 30.0, "another host is emulated");
    hosts.know(&[(bed.right.address(Family::V4), NAME)])?;
    wait("the group follows its host", || Ok(is(setting, now()?, 40.0)))?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}
