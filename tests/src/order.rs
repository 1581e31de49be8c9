//! Several flows of numbered datagrams at once: does each arrive in order, once, and whole?
//!
//! Model: a flow is one socket at each end. Threads that send are each pinned to a processor of their own, and serve
//! the flows by turns, in bursts with a pause between: so a flow stays on one processor, and nothing but the network
//! between the hosts can change its order. A burst is a system call for each datagram, or one for all of them, which
//! the kernel carries as one super-packet (`UDP_SEGMENT`, Linux 4.18). Frames that are not IP have packet sockets, and an
//! EtherType for each flow. One thread receives; the order in which a socket has its datagrams is the order in which the
//! kernel delivered them.
//! What is lacking: time. How long a datagram was under way is the business of `datagrams`.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    num::NonZero,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike as _, bind as bind_to, recv,
        sendmsg, setsockopt, socket, sockopt,
    },
};

use crate::{
    bed::{Bed, Host, INTERFACE},
    datagrams::{RECEIVE_BUFFER, bind, counted},
    processors::keep_to,
};

/// Bytes of a datagram's number.
const NUMBER: usize = 8;
/// The EtherType of the first flow of frames that are not IP: for local experiments (IEEE 802). The next flow has the next.
const ETHERTYPE: u16 = 0x88b5;
/// How long the receiver waits for the next datagram when all were sent.
const SILENCE: Duration = Duration::from_secs(3);

/// What carries datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A UDP packet each.
    Udp,
    /// A UDP super-packet for each burst.
    SuperPackets,
    /// An Ethernet frame each, not IP.
    Frames,
}

/// Which datagrams are sent.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many, of all flows together; as many more as make whole bursts.
    pub datagrams: usize,
    /// How many flows.
    pub flows: usize,
    /// How many threads send; thread `i` is pinned to processor `i`.
    pub senders: usize,
    /// How many datagrams of a flow leave together.
    pub burst: usize,
    /// Payload of each, bytes.
    pub size: usize,
    /// What a thread waits after a burst of each of its flows.
    pub pause: Duration,
    /// What carries them.
    pub carrier: Carrier,
}

/// What became of the datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// How many were sent.
    pub sent: u64,
    /// How many arrived, each counted once.
    pub received: u64,
    /// How many arrived after one of the same flow that was sent later.
    pub inversions: u64,
    /// How many arrived once more.
    pub copies: u64,
    /// How many bytes or lengths were wrong.
    pub broken: u64,
}

impl Arrivals {
    /// How many did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// How many processors this process may use.
#[must_use]
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Sends from the left host to the right one. What overflows the receiving sockets is an error, for it says nothing
/// about the network.
pub fn send(bed: &Bed, plan: &Plan) -> Result<Arrivals> {
    ensure!(plan.size >= NUMBER, "a datagram has at least {NUMBER} bytes");
    ensure!(
        plan.senders <= processors() && plan.senders <= plan.flows,
        "{} senders need as many processors and flows",
        plan.senders
    );
    let ends = (0..plan.flows)
        .map(|flow| match plan.carrier {
            Carrier::Frames => frames(bed, flow),
            Carrier::Udp | Carrier::SuperPackets => datagrams(bed, plan),
        })
        .collect::<Result<Vec<_>>>()?;
    let (senders, receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let overflows = counted(&bed.right, "RcvbufErrors")?;
    let bursts = plan.datagrams.div_ceil(plan.flows * plan.burst);
    let running = AtomicUsize::new(plan.senders);
    let mut arrivals = thread::scope(|scope| -> Result<Arrivals> {
        let listen = scope.spawn(|| listen(&receivers, plan, bursts * plan.burst, &running));
        let talkers: Vec<_> = (0..plan.senders)
            .map(|thread| {
                let (senders, running) = (&senders, &running);
                scope.spawn(move || {
                    let done = keep_to(thread).and_then(|()| talk(senders, thread, plan, bursts));
                    running.fetch_sub(1, Ordering::Release);
                    done
                })
            })
            .collect();
        for talker in talkers {
            let done = talker.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .context("sending")?;
        }
        let received = listen.join();
        received
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .context("receiving")
    })?;
    arrivals.sent = (bursts * plan.burst * plan.flows) as u64;
    let overflows = counted(&bed.right, "RcvbufErrors")? - overflows;
    ensure!(
        overflows == 0,
        "{overflows} datagrams did not fit into the receiver's sockets"
    );
    Ok(arrivals)
}

/// The end of a flow that sends.
struct Sender {
    socket: OwnedFd,
    /// What stands before the payload in what the socket is given.
    header: Vec<u8>,
}

impl Sender {
    fn send(&self, payload: &[u8]) -> nix::Result<()> {
        let parts = [IoSlice::new(&self.header), IoSlice::new(payload)];
        sendmsg::<()>(self.socket.as_raw_fd(), &parts, &[], MsgFlags::empty(), None).map(drop)
    }
}

/// The two ends of a flow over UDP.
fn datagrams(bed: &Bed, plan: &Plan) -> Result<(Sender, OwnedFd)> {
    let (from, to) = (&bed.left, &bed.right);
    let receiver = bind(to, to.v4.into(), 0).context("making a receiver's socket")?;
    setsockopt(&receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
    receiver.set_nonblocking(true)?;
    let sender = bind(from, IpAddr::from(Ipv4Addr::UNSPECIFIED), 0).context("making a sender's socket")?;
    setsockopt(&sender, sockopt::SndBufForce, &RECEIVE_BUFFER)?;
    if plan.carrier == Carrier::SuperPackets {
        setsockopt(&sender, sockopt::UdpGsoSegment, &i32::try_from(plan.size)?)?;
    }
    sender.connect(receiver.local_addr()?)?;
    let sender = Sender {
        socket: UdpSocket::into(sender),
        header: Vec::new(),
    };
    Ok((sender, UdpSocket::into(receiver)))
}

/// The two ends of a flow of frames that are not IP.
fn frames(bed: &Bed, flow: usize) -> Result<(Sender, OwnedFd)> {
    let ethertype = ETHERTYPE + u16::try_from(flow)?;
    // The receiver gets what follows the header; the sender, bound to no EtherType, receives nothing.
    let receiver = packet_socket(&bed.right, INTERFACE, SockType::Datagram, ethertype)?;
    setsockopt(&receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
    let sender = packet_socket(&bed.left, INTERFACE, SockType::Raw, 0)?;
    setsockopt(&sender, sockopt::SndBufForce, &RECEIVE_BUFFER)?;
    let addresses = [bed.right.hardware, bed.left.hardware].concat();
    let header = [&addresses[..], &ethertype.to_be_bytes()].concat();
    Ok((
        Sender {
            socket: sender,
            header,
        },
        receiver,
    ))
}

/// A packet socket on a host's interface, which does not wait for what is received.
///
/// # Errors
/// Those of the system calls that make it.
pub fn packet_socket(host: &Host, interface: &str, kind: SockType, ethertype: u16) -> Result<OwnedFd> {
    let make = || -> nix::Result<OwnedFd> {
        let flags = match kind {
            SockType::Raw => SockFlag::empty(),
            _ => SockFlag::SOCK_NONBLOCK,
        };
        let socket = socket(AddressFamily::Packet, kind, flags, None)?;
        // SAFETY: an address is plain data, for which all zeroes is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = if_nametoindex(interface)?.cast_signed();
        // SAFETY: it points to an address of that length.
        let address = unsafe {
            LinkAddr::from_raw(
                (&raw const address).cast(),
                Some(size_of::<libc::sockaddr_ll>() as libc::socklen_t),
            )
        };
        bind_to(socket.as_raw_fd(), &address.ok_or(Errno::EINVAL)?)?;
        Ok(socket)
    };
    host.enter(make)?.context("making a packet socket")
}

/// Byte `index` of datagram `number`.
fn pattern(number: usize, index: usize) -> u8 {
    (number.wrapping_mul(31) ^ index.wrapping_mul(7)) as u8
}

fn write_datagram(number: usize, datagram: &mut [u8]) {
    let (head, rest) = datagram.split_at_mut(NUMBER);
    head.copy_from_slice(&(number as u64).to_le_bytes());
    for (index, byte) in rest.iter_mut().enumerate() {
        *byte = pattern(number, index);
    }
}

/// Sends the bursts of every `plan.senders`-th flow.
fn talk(senders: &[Sender], thread: usize, plan: &Plan, bursts: usize) -> io::Result<()> {
    let mut buffer = vec![0; plan.size * plan.burst];
    for burst in 0..bursts {
        for (index, datagram) in buffer.chunks_mut(plan.size).enumerate() {
            write_datagram(burst * plan.burst + index, datagram);
        }
        let whole = match plan.carrier {
            Carrier::SuperPackets => buffer.len(),
            Carrier::Udp | Carrier::Frames => plan.size,
        };
        for sender in senders.iter().skip(thread).step_by(plan.senders) {
            for piece in buffer.chunks(whole) {
                sender.send(piece)?;
            }
        }
        thread::sleep(plan.pause);
    }
    Ok(())
}

/// What one socket has received.
struct Flow {
    seen: Vec<bool>,
    /// The number after the highest one.
    next: usize,
}

/// Receives until all is there, or nothing comes any more after the senders' end.
fn listen(sockets: &[OwnedFd], plan: &Plan, expected: usize, running: &AtomicUsize) -> io::Result<Arrivals> {
    const TICK_MS: u8 = 100;
    let mut arrivals = Arrivals::default();
    let mut flows: Vec<Flow> = sockets
        .iter()
        .map(|_| Flow {
            seen: vec![false; expected],
            next: 0,
        })
        .collect();
    let mut buffer = vec![0; plan.size + 1];
    let mut last = Instant::now();
    loop {
        let mut ready: Vec<_> = sockets
            .iter()
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut ready, PollTimeout::from(TICK_MS))?;
        let before = arrivals.received + arrivals.copies + arrivals.broken;
        for (socket, flow) in sockets.iter().zip(&mut flows) {
            loop {
                match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                    Ok(length) => flow.take(&buffer[..length], plan.size, &mut arrivals),
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let over = running.load(Ordering::Acquire) == 0;
        if arrivals.received + arrivals.copies + arrivals.broken > before || !over {
            last = Instant::now();
        }
        // A copy would come soon after the last datagram.
        let complete = arrivals.received == (expected * sockets.len()) as u64;
        let patience = if complete { SILENCE / 10 } else { SILENCE };
        if over && last.elapsed() > patience {
            return Ok(arrivals);
        }
    }
}

impl Flow {
    fn take(&mut self, datagram: &[u8], size: usize, arrivals: &mut Arrivals) {
        let number = datagram
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes) as usize);
        let Some(number) = number.filter(|&number| number < self.seen.len() && datagram.len() == size) else {
            arrivals.broken += 1;
            return;
        };
        let as_sent = |(index, byte): (usize, &u8)| *byte == pattern(number, index);
        if !datagram[NUMBER..].iter().enumerate().all(as_sent) {
            arrivals.broken += 1;
        }
        if std::mem::replace(&mut self.seen[number], true) {
            arrivals.copies += 1;
            return;
        }
        arrivals.received += 1;
        if number < self.next {
            arrivals.inversions += 1;
        } else {
            self.next = number + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(numbers: &[usize]) -> Arrivals {
        let mut found = Arrivals::default();
        let mut flow = Flow {
            seen: vec![false; 8],
            next: 0,
        };
        for &number in numbers {
            let mut datagram = [0; 20];
            write_datagram(number, &mut datagram);
            flow.take(&datagram, 20, &mut found);
        }
        found
    }

    #[test]
    fn what_comes_late_twice_or_broken_is_counted() {
        let found = |received, inversions, copies, broken| Arrivals {
            sent: 0,
            received,
            inversions,
            copies,
            broken,
        };
        assert_eq!(arrivals(&[0, 1, 2, 3]), found(4, 0, 0, 0));
        assert_eq!(arrivals(&[0, 2, 3]), found(3, 0, 0, 0));
        assert_eq!(arrivals(&[3, 0, 1, 2]), found(4, 3, 0, 0));
        assert_eq!(arrivals(&[0, 1, 1, 0]), found(2, 0, 2, 0));
        assert_eq!(arrivals(&[0, 9]), found(1, 0, 0, 1));
        let mut flow = Flow {
            seen: vec![false; 8],
            next: 0,
        };
        let (mut count, mut datagram) = (Arrivals::default(), [0; 20]);
        write_datagram(1, &mut datagram);
        datagram[19] ^= 1;
        flow.take(&datagram, 20, &mut count);
        flow.take(&datagram[..7], 20, &mut count);
        assert_eq!(count, found(1, 0, 0, 2));
    }
}
