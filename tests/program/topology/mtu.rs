//! `mtu`: what passes whole between private hosts, and what is charged for it.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use perturb_emulator::status::Flow;
use perturb_tests::datagrams::set;
use perturb_verdict::or_end;

use crate::{Network, PORT, address, early_us};

/// IPv4 and UDP headers.
const UDP: usize = 28;
/// IPv4 and TCP headers with time stamps.
const TCP: usize = 52;
const ETHERNET: u64 = 14;
const GAP: Duration = Duration::from_millis(2);
/// Of the stream.
const BYTES: usize = 100_000;

/// A datagram of just that size passes as one packet, a larger one in fragments or not at all.
#[test]
fn a_packet_of_the_mtu_passes_whole() {
    for mtu in [1280, 3584, 9000, 65_521] {
        let largest = mtu - UDP;
        let mut network = or_end!(Network::new(&format!("mtu: {mtu}B\ngap: 1us\n"), 2, false));
        let before = sent(&mut network);
        let receiver = network.lab.hosts[1]
            .namespace
            .enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap())
            .unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = network.lab.hosts[0]
            .namespace
            .enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap())
            .unwrap();
        sender.connect((address(1), PORT)).unwrap();
        let mut buffer = vec![0; 65_536];
        discover(&sender, libc::IP_PMTUDISC_DO);
        assert_eq!(sender.send(&buffer[..largest]).unwrap(), largest);
        assert_eq!(receiver.recv(&mut buffer).unwrap(), largest);
        let whole = sent(&mut network);
        let one = (whole.packets - before.packets, whole.bytes - before.bytes);
        assert_eq!(one, (1, (largest + UDP) as u64 + ETHERNET), "mtu {mtu}");
        let refused = sender.send(&buffer[..largest + 1]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE), "mtu {mtu}");
        discover(&sender, libc::IP_PMTUDISC_DONT);
        sender.send(&buffer[..largest + 1]).unwrap();
        assert_eq!(receiver.recv(&mut buffer).unwrap(), largest + 1);
        assert_eq!(
            sent(&mut network).packets - whole.packets,
            2,
            "mtu {mtu}: fragments"
        );
    }
}

/// Gap per segment of the MTU, wire bytes with the headers of each, whether super-packets are split or not.
#[test]
fn super_packets_are_charged_by_the_segments_of_the_mtu() {
    for (mtu, segmentation) in [(1500, "whole"), (3584, "whole"), (3584, "exact"), (9000, "auto")] {
        let segments = BYTES.div_ceil(mtu - TCP) as u64;
        let profile = format!(
            "mtu: {mtu}B\nsegmentation: {segmentation}\nservers: {{ out: {{ gap: 2ms }} }}\n\
             classes: [ {{ name: all, egress: [out], ingress: [] }} ]\n"
        );
        let mut network = or_end!(Network::new(&profile, 2, false));
        let [there, here] = [1, 0].map(|host| &network.lab.hosts[host].namespace);
        let listener = there
            .enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap())
            .unwrap();
        let reader = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut data = Vec::new();
            stream.read_to_end(&mut data).unwrap();
            (data.len(), Instant::now())
        });
        let mut stream = here
            .enter(|| TcpStream::connect((address(1), PORT)).unwrap())
            .unwrap();
        let before = sent(&mut network);
        let start = Instant::now();
        stream.write_all(&[0; BYTES]).unwrap();
        drop(stream);
        let (received, end) = reader.join().unwrap();
        let all = sent(&mut network);
        let (packets, bytes) = (all.wire_packets - before.wire_packets, all.bytes - before.bytes);
        let case =
            format!("mtu {mtu}, {segmentation}: {packets} packets, {bytes} bytes for {segments} segments");
        println!("    figure: {case}, {} in all", all.packets - before.packets);
        assert_eq!(received, BYTES, "{case}");
        // The segments, the handshake's last acknowledgment and the end; a segment may end where a write's memory does.
        assert!(
            (segments..segments + segments / 4 + 4).contains(&packets),
            "{case}"
        );
        // As many headers as packets.
        assert_eq!(bytes, BYTES as u64 + packets * (TCP as u64 + ETHERNET), "{case}");
        let least = GAP * segments as u32 - Duration::from_micros(early_us(2) as u64);
        assert!(end - start >= least, "{case}: {:?}, not {least:?}", end - start);
    }
}

/// Whether a datagram may become fragments.
fn discover(socket: &UdpSocket, how: i32) {
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, how).unwrap();
}

/// What h1 has sent.
fn sent(network: &mut Network) -> Flow {
    let report = network.running.as_mut().unwrap().settled().unwrap().unwrap();
    assert!(report.faults.unwrap().is_empty());
    report.classes.into_iter().next().unwrap().egress
}
