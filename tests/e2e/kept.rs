//! What a held packet keeps: the time at which its sender would have it leave (docs/hop.md).

use std::{
    io::{IoSlice, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::util::KernelVersion;
use etherparse::{PacketBuilder, VlanId};
use nix::sys::socket::{
    ControlMessage, MsgFlags, SockType, SockaddrStorage, send, sendmsg, setsockopt, sockopt,
};
use perturb_common::priorities::LABELS;
use perturb_tests::{
    bed::{Host, INTERFACE},
    clock, datagrams,
    order::packet_socket,
};

use crate::{
    harness::{Setting, Test, each, skip},
    update::wait,
};

pub(crate) const TESTS: &[Test] = &[
    each("kept::launch_times", launch_times),
    each("kept::pacing_of_tcp", paced),
    each("kept::priorities", priorities),
    each("kept::tagged_frames", tagged),
];

/// How long a receiver waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// The only datagrams of a bed.
const PORT: u16 = 7100;

/// Sends a datagram that is to leave at a time, CLOCK_MONOTONIC ns.
fn send_at(socket: &UdpSocket, to: SocketAddr, time: u64) -> Result<()> {
    let (to, data) = (SockaddrStorage::from(to), [IoSlice::new(b"stamped")]);
    let control = [ControlMessage::TxTime(&time)];
    sendmsg(socket.as_raw_fd(), &data, &control, MsgFlags::empty(), Some(&to))
        .context("sending with a launch time")?;
    Ok(())
}

/// A packet with a launch time, as TCP's pacing and Cilium give it, enters the emulation at that time: not before, and not
/// so late that it is lost; also through the splitter.
fn launch_times(setting: &Setting) -> Result<()> {
    const LATENCY: Duration = Duration::from_millis(20);
    // `FARTHEST_STAMP` of the programs.
    const FARTHEST: Duration = Duration::from_millis(500);
    // Before, a stamp by SO_TXTIME does not say by which clock it is (`skb->tstamp_type`).
    if KernelVersion::current()? < KernelVersion::new(6, 9, 0) {
        return Err(skip(
            "before Linux 6.9 launch times of datagrams do not name their clock",
        ));
    }
    let (bed, _) = setting.bed()?;
    let receiver = bed.right.enter(|| UdpSocket::bind((bed.right.v4, PORT)))??;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let sender = bed.left.enter(|| UdpSocket::bind((bed.left.v4, 0)))??;
    let clock = libc::sock_txtime {
        clockid: libc::CLOCK_MONOTONIC,
        flags: 0,
    };
    setsockopt(&sender, sockopt::TxTime, &clock)?;
    for segmentation in ["whole", "exact"] {
        let profile = format!(
            "segmentation: {segmentation}\nservers: {{ w: {{ latency: 20ms }} }}\n\
             classes: [{{ name: all, match: {{}}, egress: [w] }}]"
        );
        let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
        let early = Duration::from_nanos((setting.early_us() * 1e3) as u64);
        for (ahead, counts) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_millis(150), Duration::from_millis(150)),
            (Duration::from_secs(30), FARTHEST),
        ] {
            let start = Instant::now();
            let stamp = clock::now().saturating_add(ahead.as_nanos() as u64);
            send_at(&sender, (bed.right.v4, PORT).into(), stamp)?;
            receiver
                .recv_from(&mut [0; 16])
                .with_context(|| format!("stamped {ahead:?} ahead, {segmentation}: it did not arrive"))?;
            let took = start.elapsed();
            ensure!(
                took + early >= counts + LATENCY,
                "stamped {ahead:?} ahead, {segmentation}: it arrived after {took:?}"
            );
        }
        applied.nothing_unintended()?;
        applied.stop()?;
    }
    Ok(())
}

/// A frame whose VLAN tag stands in its data, as packet sockets and virtual machines send it, is no IP packet on its way in
/// and is one on its way out: it must be known again, or its mark and its time are lost.
fn tagged(setting: &Setting) -> Result<()> {
    const FRAMES: u16 = 200;
    const PAYLOAD: &[u8] = b"tagged";
    let (bed, _) = setting.bed()?;
    for command in [
        format!("ip link add link {INTERFACE} name tagged type vlan id 5"),
        "ip addr add 10.99.5.2/24 dev tagged".into(),
        "ip link set tagged up".into(),
    ] {
        bed.right
            .run(&command)
            .map_err(|error| skip(format!("this kernel has no VLANs: {error:#}")))?;
    }
    let to = Ipv4Addr::new(10, 99, 5, 2);
    let receiver = bed.right.enter(|| UdpSocket::bind((to, PORT)))??;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let sender = packet_socket(&bed.left, INTERFACE, SockType::Raw, 0)?;
    setsockopt(&sender, sockopt::Mark, &42)?;
    let ip = PacketBuilder::ethernet2(bed.left.hardware, bed.right.hardware)
        .single_vlan(VlanId::try_new(5)?)
        .ipv4([10, 99, 5, 1], to.octets(), 64)
        .udp(PORT, PORT);
    let mut frame = Vec::new();
    ip.write(&mut frame, PAYLOAD)?;
    let applied = setting.product.apply(&bed.left, "latency: 5ms", setting.pacer)?;
    for number in 0..FRAMES {
        send(sender.as_raw_fd(), &frame, MsgFlags::empty())?;
        let (length, _) = receiver
            .recv_from(&mut [0; 16])
            .with_context(|| format!("frame {number} did not arrive"))?;
        ensure!(length == PAYLOAD.len(), "frame {number} has {length} bytes");
    }
    wait("all frames are accounted for", || {
        let balance = applied.counters()?["balance"].clone();
        Ok(balance["unaccounted"] == 0 && balance["captured"].as_u64() >= Some(FRAMES.into()))
    })?;
    applied.nothing_unintended()?;
    applied.stop()
}

/// TCP leaves its pacing to the interface's sch_fq once that has seen the socket, by launch times; they hold for what is
/// held, too.
fn paced(setting: &Setting) -> Result<()> {
    const BYTES: usize = 400_000;
    const RATE: u32 = 1_000_000;
    // A few packets at the start are not paced.
    const LEAST: Duration = Duration::from_millis(300);
    let (bed, _) = setting.bed()?;
    bed.left
        .run(&format!("tc qdisc add dev {INTERFACE} root fq"))
        .map_err(|error| skip(format!("this kernel has no sch_fq: {error:#}")))?;
    let listener = bed.right.enter(|| TcpListener::bind((bed.right.v4, PORT)))??;
    let to = listener.local_addr()?;
    let mut stream = bed.left.enter(|| TcpStream::connect_timeout(&to, PATIENCE))??;
    let (mut received, _) = listener.accept()?;
    received.set_read_timeout(Some(PATIENCE))?;
    datagrams::set(&stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, RATE as i32)?;
    // Once fq has seen a packet of the socket TCP leaves the pacing to it (`SK_PACING_FQ`).
    stream.write_all(&[0])?;
    received.read_exact(&mut [0])?;
    let applied = setting.product.apply(&bed.left, "latency: 2ms", setting.pacer)?;
    let start = Instant::now();
    let reader = thread::spawn(move || received.read_exact(&mut vec![0; BYTES]));
    stream.write_all(&vec![1; BYTES])?;
    reader
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let took = start.elapsed();
    ensure!(took >= LEAST, "{BYTES} bytes at {RATE} B/s took {took:?}");
    applied.nothing_unintended()?;
    applied.stop()
}

/// Major number of the interface's HTB; a class of its default minor gets what has no priority.
const HTB: u32 = 1;
const DEFAULT: u32 = 0x10;

/// The qdisc of the interface chooses by the priority that a packet's sender gave it: a class of HTB by its number, up to as
/// many as labels travel with held packets, and for the pieces of super-packets, too.
fn priorities(setting: &Setting) -> Result<()> {
    const CLASSES: u32 = LABELS - 1;
    const DATAGRAMS: u64 = 5;
    const BYTES: usize = 400_000;
    let (bed, _) = setting.bed()?;
    let left = &bed.left;
    left.run(&format!(
        "tc qdisc add dev {INTERFACE} root handle {HTB}: htb default {DEFAULT:x}"
    ))
    .map_err(|error| skip(format!("this kernel has no sch_htb: {error:#}")))?;
    let minors = || DEFAULT..=DEFAULT + CLASSES;
    for minor in minors() {
        left.run(&format!(
            "tc class add dev {INTERFACE} parent {HTB}: classid {HTB}:{minor:x} htb rate 1gbit"
        ))?;
    }
    let receiver = bed.right.enter(|| UdpSocket::bind((bed.right.v4, PORT)))??;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let listener = bed.right.enter(|| TcpListener::bind((bed.right.v4, PORT)))??;
    // A gap is kept between wire packets: super-packets are cut before they are held.
    let profile = "latency: 5ms\ngap: 1us";
    let applied = setting.product.apply(left, profile, setting.pacer)?;

    let sockets: Vec<UdpSocket> = minors()
        .map(|minor| {
            let socket = left.enter(|| UdpSocket::bind((left.v4, 0)))??;
            if minor != DEFAULT {
                setsockopt(&socket, sockopt::Priority, &((HTB << 16 | minor) as i32))?;
            }
            Ok(socket)
        })
        .collect::<Result<_>>()?;
    let before = sent(left, minors())?;
    for _ in 0..DATAGRAMS {
        for socket in &sockets {
            socket.send_to(b"classified", (bed.right.v4, PORT))?;
        }
    }
    for number in 0..sockets.len() as u64 * DATAGRAMS {
        receiver
            .recv_from(&mut [0; 16])
            .with_context(|| format!("datagram {number} did not arrive"))?;
    }
    let after = sent(left, minors())?;
    for ((minor, before), after) in minors().zip(&before).zip(&after) {
        let count = after.packets - before.packets;
        // The host's own packets (neighbors, routers) are the default class's, too.
        let is_right = if minor == DEFAULT {
            count >= DATAGRAMS
        } else {
            count == DATAGRAMS
        };
        ensure!(is_right, "class {HTB}:{minor:x} sent {count} packets");
    }

    let mut stream = left.enter(|| TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE))??;
    let (mut received, _) = listener.accept()?;
    received.set_read_timeout(Some(PATIENCE))?;
    setsockopt(
        &stream,
        sockopt::Priority,
        &((HTB << 16 | (DEFAULT + CLASSES)) as i32),
    )?;
    let reader = thread::spawn(move || received.read_exact(&mut vec![0; BYTES]));
    stream.write_all(&vec![1; BYTES])?;
    reader
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let end = sent(left, minors())?;
    let of = |place: usize| -> Result<u64> {
        let (end, after) = end.get(place).zip(after.get(place)).context("no such class")?;
        Ok(end.bytes - after.bytes)
    };
    let (own, default) = (of(CLASSES as usize)?, of(0)?);
    ensure!(
        own >= BYTES as u64 && default < 1_000,
        "of {BYTES} bytes over TCP {own} had their priority, and {default} none"
    );
    applied.nothing_unintended()?;
    applied.stop()
}

/// What a class has sent.
struct Sent {
    bytes: u64,
    packets: u64,
}

/// What HTB's classes have sent.
fn sent(host: &Host, minors: impl Iterator<Item = u32>) -> Result<Vec<Sent>> {
    let shown = host.run(&format!("tc -s class show dev {INTERFACE}"))?;
    let of = |minor: u32| {
        let class = format!("class htb {HTB}:{minor:x} ");
        let (_, rest) = shown.split_once(&class)?;
        let (_, rest) = rest.split_once("Sent ")?;
        let mut words = rest.split_whitespace();
        Some(Sent {
            bytes: words.next()?.parse().ok()?,
            packets: words.nth(1)?.parse().ok()?,
        })
    };
    minors
        .map(|minor| of(minor).with_context(|| format!("no class {minor:x} in {shown}")))
        .collect()
}
