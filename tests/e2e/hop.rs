//! What the way through a hold device takes from a packet, and what is kept in spite of it (docs/hop.md).

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use perturb_tests::{
    bed::{Host, INTERFACE},
    bystander::{self, Bystander},
    datagrams::{self, Plan},
    remains::State,
};

use crate::harness::{Setting, Test, each, figure, once, skip};

pub(crate) const TESTS: &[Test] = &[
    each("hop::loopback", loopback),
    each("hop::loopback_in_one_direction", loopback_one_way),
    each("hop::loopback_is_put_back_after_a_kill", loopback_killed),
    once("hop::metadata_tunnels_are_refused", metadata_tunnels),
    each("hop::super_packets_in_a_tunnel_arrive", tunneled),
    once("hop::vrf_is_refused", vrf),
    each("hop::perturb_comes_before_other_programs", comes_first),
    once("hop::who_is_ahead_is_said", says_who_is_ahead),
    once("hop::xdp_is_said", xdp),
    each("hop::silence_is_said", silence),
];

/// How long a receiver waits.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOPBACK: &str = "lo";

/// The settings of lo and of all interfaces, in a host's namespace.
fn settings(host: &Host) -> Result<Vec<String>> {
    let keys = ["route_localnet", "accept_local", "rp_filter"];
    let paths = keys.iter().flat_map(|key| {
        ["lo", "all", "default"].map(|interface| format!("/proc/sys/net/ipv4/conf/{interface}/{key}"))
    });
    let paths: Vec<String> = paths.collect();
    host.enter(|| {
        paths
            .iter()
            .map(|path| Ok(format!("{path} {}", std::fs::read_to_string(path)?.trim())))
            .collect()
    })?
}

/// How long a datagram takes to an address of the host itself and back.
fn datagram(host: &Host, address: IpAddr) -> Result<Duration> {
    host.enter(|| {
        let far = UdpSocket::bind((address, 0))?;
        let near = UdpSocket::bind((address, 0))?;
        for socket in [&far, &near] {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let mut data = [0; 16];
        let start = Instant::now();
        near.send_to(b"there", far.local_addr()?)?;
        let (_, from) = far
            .recv_from(&mut data)
            .with_context(|| format!("UDP to {address}: nothing arrived"))?;
        far.send_to(b"back", from)?;
        near.recv_from(&mut data)
            .with_context(|| format!("UDP to {address}: no answer"))?;
        Ok(start.elapsed())
    })?
}

/// A megabyte over TCP to an address of the host itself, which comes back.
fn stream(host: &Host, address: IpAddr) -> Result<()> {
    const BYTES: usize = 1 << 20;
    host.enter(|| {
        let listener = TcpListener::bind((address, 0))?;
        let to: SocketAddr = listener.local_addr()?;
        let echo = thread::spawn(move || -> Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut data = vec![0; BYTES];
            stream.read_exact(&mut data)?;
            Ok(stream.write_all(&data)?)
        });
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)
            .with_context(|| format!("TCP to {address}: no connection"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        stream.write_all(&sent)?;
        let mut received = vec![0; BYTES];
        stream
            .read_exact(&mut received)
            .with_context(|| format!("TCP to {address}: it did not come back"))?;
        ensure!(sent == received, "TCP to {address}: it came back changed");
        echo.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?
}

/// The addresses under which a host reaches itself.
fn own(host: &Host) -> [IpAddr; 5] {
    [
        Ipv4Addr::LOCALHOST.into(),
        Ipv4Addr::new(127, 8, 9, 10).into(),
        host.v4.into(),
        Ipv6Addr::LOCALHOST.into(),
        host.v6.into(),
    ]
}

/// lo under emulation carries IPv4 and IPv6 with the delay asked for, and its settings are put back.
fn loopback(setting: &Setting) -> Result<()> {
    // There and back, each of which is sent and received on lo.
    const ROUND: Duration = Duration::from_millis(4 * 5);
    carries(setting, "latency: 5ms", ROUND)
}

fn loopback_one_way(setting: &Setting) -> Result<()> {
    const ROUND: Duration = Duration::from_millis(2 * 5);
    for direction in ["egress", "ingress"] {
        let profile = format!(
            "servers: {{ wire: {{ latency: 5ms }} }}\nclasses: [{{ name: all, match: {{}}, {direction}: [wire] }}]\n"
        );
        carries(setting, &profile, ROUND).context(direction)?;
    }
    Ok(())
}

fn carries(setting: &Setting, profile: &str, round: Duration) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let host = &bed.left;
    let settings_before = settings(host)?;
    let applied = setting
        .product
        .apply_to(host, LOOPBACK, profile, setting.pacer, &[])?;
    let early = Duration::from_nanos((setting.early_us() * 4e3) as u64);
    for address in own(host) {
        let took = datagram(host, address)?;
        ensure!(took + early >= round, "{address}: there and back in {took:?}");
        stream(host, address)?;
        host.run(&format!("ping -q -c 2 -i 0.2 -W 2 {address}"))?;
    }
    // Nothing but lo is allowed anything.
    let during = settings(host)?;
    for (during, before) in during.iter().zip(&settings_before) {
        ensure!(
            during == before || during.contains("/lo/"),
            "{before} was changed: {during}"
        );
    }
    applied.nothing_unintended()?;
    applied.stop()?;
    ensure!(
        settings(host)? == settings_before,
        "settings were left: {:?}, before {settings_before:?}",
        settings(host)?
    );
    before.must_be_that_of(host)
}

/// A killed emulation leaves the settings; the next command puts them back, and leaves alone what was on before.
fn loopback_killed(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let host = &bed.left;
    host.sysctl("ipv4/conf/lo/accept_local", "1")?;
    let settings_before = settings(host)?;
    let before = State::of(host)?;
    let applied = setting
        .product
        .apply_to(host, LOOPBACK, "latency: 5ms", setting.pacer, &[])?;
    ensure!(
        settings(host)? != settings_before,
        "lo has what it needs without a change"
    );
    applied.signal(Signal::SIGKILL)?;
    applied.ended()?;
    let cleared = setting.product.call(host, &["clear", "--iface", LOOPBACK])?;
    ensure!(cleared.code() == 0, "perturb clear: {cleared:?}");
    ensure!(
        settings(host)? == settings_before,
        "settings were left: {:?}, before {settings_before:?}",
        settings(host)?
    );
    datagram(host, Ipv4Addr::LOCALHOST.into())?;
    before.must_be_that_of(host)
}

/// A device of a kind, if this kernel and `ip` have it.
fn device(host: &Host, line: &str) -> Result<()> {
    host.run(&format!("ip link add {line}"))
        .map(drop)
        .map_err(|error| skip(format!("this kernel has no such device: {error:#}")))
}

/// `perturb apply` of an interface must fail, for this reason.
fn must_refuse(setting: &Setting, host: &Host, interface: &str, reason: &str) -> Result<()> {
    let profile = setting.product.profile("latency: 5ms")?;
    let profile = profile.to_str().context("the profile's path")?;
    let called = setting
        .product
        .call(host, &["apply", profile, "--iface", interface, "--for", "1s"])?;
    ensure!(called.code() == 1, "{interface} was not refused: {called:?}");
    ensure!(called.stderr.contains(reason), "{interface}: {}", called.stderr);
    ensure!(
        called.stderr.contains(interface) && called.stderr.contains("instead"),
        "{interface}: the message does not say which, or what to do: {}",
        called.stderr
    );
    Ok(())
}

/// Tunnels whose far end each packet brings along are refused, others of the same kind are not.
fn metadata_tunnels(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let host = &bed.left;
    let mut refused = 0;
    for (name, kind) in [
        ("vx0", "vxlan external dstport 4789"),
        ("gn0", "geneve external"),
        ("gt0", "gretap external"),
        ("gs0", "ip6gretap external"),
        ("er0", "erspan external"),
    ] {
        let made = device(host, &format!("{name} type {kind}"));
        if made.is_err() {
            figure!("no {kind} here");
            continue;
        }
        must_refuse(setting, host, name, "external")?;
        refused += 1;
    }
    ensure!(refused > 0, "this kernel has no tunnel at all");
    device(
        host,
        &format!("vx1 type vxlan id 7 remote {} dstport 4790", bed.right.v4),
    )?;
    host.run("ip link set vx1 up")?;
    let applied = setting
        .product
        .apply_to(host, "vx1", "latency: 5ms", setting.pacer, &[])?;
    applied.stop()
}

/// TCP through tunnels that run over the emulated interface: their super-packets reach it whole, and no hold device cuts all
/// but the first part off.
fn tunneled(setting: &Setting) -> Result<()> {
    const BYTES: usize = 4 << 20;
    let kinds = [
        ("vx0", "vxlan id 7 dstport 4789 dev eth0"),
        ("gn0", "geneve id 7"),
        ("gt0", "gretap"),
        ("ip0", "ipip"),
    ];
    let mut made = 0;
    for (number, (name, kind)) in (100u8..).zip(kinds) {
        let (bed, _) = setting.bed()?;
        let ends = [(&bed.left, &bed.right, 1), (&bed.right, &bed.left, 2)];
        let wire = |(host, other, end): (&Host, &Host, u8)| -> Result<()> {
            let local = if name == "gn0" {
                String::new()
            } else {
                format!("local {}", host.v4)
            };
            device(host, &format!("{name} type {kind} {local} remote {}", other.v4))?;
            host.run(&format!("ip address add 10.{number}.0.{end}/24 dev {name}"))?;
            host.run(&format!("ip link set {name} up"))?;
            Ok(())
        };
        if let Err(error) = ends.into_iter().try_for_each(wire) {
            figure!("no {kind} here: {error:#}");
            continue;
        }
        made += 1;
        let applied = setting.product.apply(&bed.left, "latency: 5ms", setting.pacer)?;
        let far = Ipv4Addr::new(10, number, 0, 2);
        let listener = bed.right.enter(|| TcpListener::bind((far, 0)))??;
        let address = listener.local_addr()?;
        let reader = thread::spawn(move || -> Result<usize> {
            let (mut peer, _) = listener.accept()?;
            peer.set_read_timeout(Some(PATIENCE))?;
            let mut all = Vec::new();
            peer.read_to_end(&mut all)?;
            Ok(all.len())
        });
        let mut stream = bed
            .left
            .enter(|| TcpStream::connect_timeout(&address, PATIENCE))?
            .with_context(|| format!("connecting through {name}"))?;
        stream.write_all(&vec![7; BYTES])?;
        drop(stream);
        let read = reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let read = read.with_context(|| format!("receiving through {name}"))?;
        ensure!(read == BYTES, "{name}: {read} of {BYTES} bytes arrived");
        applied.nothing_unintended()?;
        let balance = applied.counters()?["balance"].clone();
        figure!("{name}: {balance}");
        applied.stop()?;
    }
    if made == 0 {
        return Err(skip("this kernel has no tunnels"));
    }
    Ok(())
}

fn vrf(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    device(&bed.left, "vrf0 type vrf table 10")?;
    must_refuse(setting, &bed.left, "vrf0", "VRF")
}

/// What `perturb apply` says on standard error while it sets up an interface.
fn says(setting: &Setting, host: &Host) -> Result<String> {
    let profile = setting.product.profile("latency: 5ms")?;
    let profile = profile.to_str().context("the profile's path")?;
    let called = setting
        .product
        .call(host, &["apply", profile, "--iface", INTERFACE, "--for", "300ms"])?;
    ensure!(called.code() == 0, "{called:?}");
    Ok(called.stderr)
}

/// A program that was there first and answers for every packet does not hide perturb: it comes first, and says who else is
/// there.
fn comes_first(setting: &Setting) -> Result<()> {
    const DELAY_US: f64 = 20_000.0;
    let (bed, _) = setting.bed()?;
    let host = &bed.left;
    let bystander = Bystander::at(host, bystander::PREF)?;
    let said = says(setting, host)?;
    for side in ["egress", "ingress"] {
        ensure!(
            said.contains(&format!("{side} has {}", bystander.name)) && said.contains("perturb comes first"),
            "it does not say who else is at {side}: {said}"
        );
    }
    let applied = setting.product.apply(
        host,
        "servers: { w: { latency: 20ms } }\nclasses: [{ name: all, match: {}, egress: [w] }]",
        setting.pacer,
    )?;
    let plan = Plan {
        count: 20,
        ..Plan::default()
    };
    let trace = datagrams::send(host, &bed.right, &plan)?;
    let report = applied.counters()?;
    ensure!(trace.lost().is_empty(), "lost {:?}", trace.lost());
    let least = trace.delays_us()?.min();
    ensure!(
        least >= DELAY_US - setting.early_us(),
        "a datagram took {least} us"
    );
    ensure!(
        report["classes"][0]["egress"]["packets"] == 20,
        "perturb saw {} packets of 20",
        report["classes"][0]["egress"]["packets"]
    );
    applied.stop()
}

/// Where no priority is lower than another filter's, perturb says that it does not come first.
fn says_who_is_ahead(setting: &Setting) -> Result<()> {
    if perturb_dataplane::attach::has_tcx() {
        return Err(skip("programs at TCX come before all filters"));
    }
    let (bed, _) = setting.bed()?;
    let host = &bed.left;
    let bystander = Bystander::at(host, 1)?;
    let said = says(setting, host)?;
    ensure!(
        said.contains(&format!("egress has {} before perturb", bystander.name)),
        "it does not say who is ahead: {said}"
    );
    Ok(())
}

/// An XDP program sees packets first, which is said.
fn xdp(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let host = &bed.left;
    let said = says(setting, host)?;
    ensure!(!said.contains("XDP"), "there is no such program: {said}");
    bystander::xdp(host)?;
    let said = says(setting, host)?;
    ensure!(said.contains("warning: eth0: an XDP program"), "it says {said}");
    Ok(())
}

/// Where a program comes before perturb later and answers for all packets, perturb says that it sees none.
fn silence(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let host = &bed.left;
    let applied = setting.product.apply(host, "latency: 5ms", setting.pacer)?;
    let _bystander = Bystander::at(host, 1)?;
    let plan = Plan {
        count: 200,
        ..Plan::default()
    };
    let trace = datagrams::send(host, &bed.right, &plan)?;
    ensure!(trace.lost().is_empty(), "lost {:?}", trace.lost());
    thread::sleep(Duration::from_secs(6));
    applied.signal(Signal::SIGINT)?;
    let (status, said) = applied.ended()?;
    ensure!(status.success(), "perturb apply ended with {status}: {said}");
    ensure!(
        said.contains("packets since the emulation began, and perturb has seen none"),
        "it says {said}"
    );
    Ok(())
}
