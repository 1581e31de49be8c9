//! UDP datagrams: when each was sent, when (and how often, and in which state) it arrived.
//!
//! Model: datagrams 0, 1, … leave in bursts on an absolute schedule. Each carries its number and a
//! pattern that tells whether it arrived intact. The one-way delay of a datagram is its arrival minus its
//! sending: the latter is read in user space before the system call, the former is the kernel's stamp of the
//! packet's arrival at the receiving interface, so that a receiver that wakes up late does not count.
//! What is lacking: the kernel's stamp of the sending; a sender that loses the processor between reading the
//! clock and sending makes a delay too long, as it does in the control.

mod echo;

use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use perturb_stats::Sample;

use crate::{
    bed::{Family, Host},
    clock,
};

pub use self::echo::{Waiting, ping_pong};

/// Bytes of number and pattern key at the start of each datagram.
const HEADER: usize = 12;
/// Asked for; the kernel's limits do not count for root.
pub(crate) const RECEIVE_BUFFER: usize = 64 << 20;

/// Which datagrams are sent, and when.
#[derive(Clone, Debug)]
pub struct Plan {
    pub count: usize,
    /// UDP payload of each, bytes.
    pub size: usize,
    /// How many leave together.
    pub burst: usize,
    /// From the start of a burst to the start of the next.
    pub interval: Duration,
    /// How long the receiver waits after the last was sent.
    pub patience: Duration,
    /// IPv4 or IPv6.
    pub family: Family,
    /// Another address of the receiver than its first of that family.
    pub to: Option<IpAddr>,
    /// Port of the receiver; 0 for any.
    pub port: u16,
    /// Port of the sender, of the first if there are several; 0 for any.
    pub source_port: u16,
    /// TOS or traffic class byte.
    pub tos: u8,
    /// fwmark of the sender's socket.
    pub mark: u32,
    /// Wait with a running processor for each datagram's time: for gaps shorter than a timer's error.
    pub spin: bool,
    /// Let the IP layer fragment what is larger than the MTU.
    pub fragment: bool,
    /// From how many ports of the sender, by turns: as many flows.
    pub flows: usize,
    /// Receive when all were sent: waking up a receiver is processor time of the sender.
    pub receive_afterwards: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            count: 500,
            size: 64,
            burst: 1,
            interval: Duration::from_millis(2),
            patience: Duration::from_millis(300),
            family: Family::V4,
            to: None,
            port: 0,
            source_port: 0,
            tos: 0,
            mark: 0,
            spin: false,
            fragment: false,
            flows: 1,
            receive_afterwards: false,
        }
    }
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its number.
    pub number: usize,
    /// When, CLOCK_MONOTONIC ns.
    pub at: u64,
    /// Its TOS or traffic class byte.
    pub tos: u8,
    /// Whether length and pattern are as sent.
    pub intact: bool,
}

/// What was sent and what arrived.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// When each was sent, CLOCK_MONOTONIC ns.
    pub sent: Vec<u64>,
    /// When each was on its way: the programs at the sender's egress have run then.
    pub gone: Vec<u64>,
    /// What arrived, in order of arrival.
    pub received: Vec<Receipt>,
    /// Processor time of the sending thread per datagram, median, ns: what interrupts add to a few does not count.
    pub send_cost: f64,
}

impl Trace {
    /// One-way delays of first arrivals, ns, by number; `None` for what was lost.
    #[must_use]
    pub fn delays(&self) -> Vec<Option<u64>> {
        let mut delays = vec![None; self.sent.len()];
        for receipt in &self.received {
            let delay = &mut delays[receipt.number];
            if delay.is_none() {
                *delay = Some(receipt.at.saturating_sub(self.sent[receipt.number]));
            }
        }
        delays
    }

    /// One-way delays of what arrived, in microseconds.
    pub fn delays_us(&self) -> Result<Sample> {
        let delays = self
            .delays()
            .into_iter()
            .flatten()
            .map(|delay| delay as f64 / 1e3)
            .collect();
        Sample::new(delays).context("too little arrived")
    }

    /// Numbers of what did not arrive.
    #[must_use]
    pub fn lost(&self) -> Vec<usize> {
        let missing = |(number, delay): (usize, Option<u64>)| delay.is_none().then_some(number);
        self.delays()
            .into_iter()
            .enumerate()
            .filter_map(missing)
            .collect()
    }

    /// How many arrived more than once.
    #[must_use]
    pub fn duplicates(&self) -> usize {
        self.received.len() - (self.sent.len() - self.lost().len())
    }

    /// How many arrived after one that was sent later.
    #[must_use]
    pub fn reordered(&self) -> usize {
        let mut last = 0;
        self.received
            .iter()
            .filter(|receipt| {
                let late = receipt.number < last;
                last = last.max(receipt.number);
                late
            })
            .count()
    }

    /// Times between successive arrivals inside bursts of a size, in microseconds.
    pub fn spacings_us(&self, burst: usize) -> Result<Sample> {
        let spacings = self
            .received
            .windows(2)
            .filter(|pair| pair[0].number / burst == pair[1].number / burst)
            // The kernel's stamps are of a clock that may be set back while it is compared with the other.
            .map(|pair| (pair[1].at.cast_signed() - pair[0].at.cast_signed()) as f64 / 1e3)
            .collect();
        Sample::new(spacings).context("too little arrived")
    }
}

/// Sends from one host to another according to a plan.
pub fn send(from: &Host, to: &Host, plan: &Plan) -> Result<Trace> {
    ensure!(plan.size >= HEADER, "a datagram has at least {HEADER} bytes");
    let address = plan.to.unwrap_or_else(|| to.address(plan.family));
    let receiver = bind(to, address, plan.port).context("making the receiver's socket")?;
    let unspecified = match plan.family {
        Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    prepare_receiver(&receiver, plan)?;
    let senders = (0..plan.flows)
        .map(|flow| {
            let port = if flow == 0 { plan.source_port } else { 0 };
            let sender = bind(from, unspecified, port).context("making the sender's socket")?;
            prepare_sender(&sender, plan)?;
            sender.connect(receiver.local_addr()?)?;
            Ok(sender)
        })
        .collect::<Result<Vec<_>>>()?;
    let end = AtomicU64::new(u64::MAX);
    thread::scope(|scope| {
        let listen = thread::Builder::new()
            .name("receiver".into())
            .spawn_scoped(scope, || listen(&receiver, plan, &end))?;
        let talk = thread::Builder::new()
            .name("sender".into())
            .spawn_scoped(scope, || talk(&senders, plan, &end))?;
        let sent = talk
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let received = listen
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let sent = sent.context("sending")?;
        Ok(Trace {
            received: received.context("receiving")?,
            ..sent
        })
    })
}

pub(crate) fn bind(host: &Host, address: IpAddr, port: u16) -> Result<UdpSocket> {
    /// A child of another thread has a copy of a socket that was closed here, from its fork until it runs its program.
    const COPIES: Duration = Duration::from_secs(2);
    let address = SocketAddr::new(address, port);
    let start = Instant::now();
    loop {
        match host.enter(|| UdpSocket::bind(address))? {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < COPIES => {
                thread::sleep(Duration::from_millis(5));
            }
            bound => return Ok(bound?),
        }
    }
}

fn prepare_receiver(receiver: &UdpSocket, plan: &Plan) -> Result<()> {
    setsockopt(receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
    setsockopt(receiver, sockopt::ReceiveTimestampns, &true)?;
    receiver.set_read_timeout(Some(Duration::from_millis(20)))?;
    match plan.family {
        Family::V4 => set(receiver, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?,
        Family::V6 => set(receiver, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?,
    }
    Ok(())
}

fn prepare_sender(sender: &UdpSocket, plan: &Plan) -> Result<()> {
    let tos = i32::from(plan.tos);
    match plan.family {
        Family::V4 => {
            set(sender, libc::IPPROTO_IP, libc::IP_TOS, tos)?;
            if !plan.fragment {
                set(
                    sender,
                    libc::IPPROTO_IP,
                    libc::IP_MTU_DISCOVER,
                    libc::IP_PMTUDISC_DO,
                )?;
            }
        }
        Family::V6 => set(sender, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos)?,
    }
    if plan.mark != 0 {
        setsockopt(sender, sockopt::Mark, &plan.mark)?;
    }
    Ok(())
}

/// Sets a socket's option.
///
/// # Errors
/// When the kernel refuses it.
pub fn set(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` outlives the call, which reads that many bytes of it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Byte `index` of datagram `number`: neighbors differ, and so do datagrams.
fn pattern(number: usize, index: usize) -> u8 {
    (number.wrapping_mul(31) ^ index.wrapping_mul(7)) as u8
}

/// Sends all; then sets when listening ends.
fn talk(sockets: &[UdpSocket], plan: &Plan, end: &AtomicU64) -> io::Result<Trace> {
    let sent = send_all(sockets, plan);
    end.store(clock::now() + plan.patience.as_nanos() as u64, Ordering::Relaxed);
    sent
}

fn send_all(sockets: &[UdpSocket], plan: &Plan) -> io::Result<Trace> {
    let mut sent = Vec::with_capacity(plan.count);
    let mut gone = Vec::with_capacity(plan.count);
    let mut buffer = vec![0; plan.size];
    let mut due = clock::now() + 5_000_000;
    let mut costs = Vec::with_capacity(plan.count);
    for (number, socket) in (0..plan.count).zip(sockets.iter().cycle()) {
        if number % plan.burst == 0 {
            if number > 0 {
                due += plan.interval.as_nanos() as u64;
            }
            if plan.spin {
                clock::spin_until(due);
            } else {
                clock::sleep_until(due);
            }
        }
        buffer[..8].copy_from_slice(&(number as u64).to_le_bytes());
        buffer[8..HEADER].copy_from_slice(&(plan.size as u32).to_le_bytes());
        for (index, byte) in buffer.iter_mut().enumerate().skip(HEADER) {
            *byte = pattern(number, index);
        }
        let before = clock::thread_time();
        sent.push(clock::now());
        // A full queue of the device shows as an error here: it is a loss, and counted as one.
        match socket.send(&buffer) {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            other => drop(other?),
        }
        gone.push(clock::now());
        costs.push(clock::thread_time() - before);
    }
    costs.sort_unstable();
    let median = costs.get(costs.len() / 2).copied().unwrap_or_default();
    Ok(Trace {
        sent,
        gone,
        received: Vec::new(),
        send_cost: median as f64,
    })
}

fn listen(socket: &UdpSocket, plan: &Plan, end: &AtomicU64) -> io::Result<Vec<Receipt>> {
    /// How long after the last expected datagram a second copy of one may come.
    const COPIES: u64 = 50_000_000;
    let mut received: Vec<Receipt> = Vec::with_capacity(plan.count);
    let mut buffer = vec![0; plan.size + 64];
    while plan.receive_afterwards && end.load(Ordering::Relaxed) == u64::MAX {
        thread::sleep(Duration::from_millis(1));
    }
    // A receiver that the machine holds up reads what has arrived, however late, before it ends.
    loop {
        match receive(socket, &mut buffer, plan.size) {
            Ok(Some(receipt)) if receipt.number < plan.count => received.push(receipt),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let now = clock::now();
                let complete = received.len() >= plan.count
                    && received.last().is_some_and(|last| now > last.at + COPIES);
                if complete || now > end.load(Ordering::Relaxed) {
                    return Ok(received);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Receives one datagram; `None` if it is not one of ours.
fn receive(socket: &UdpSocket, buffer: &mut [u8], size: usize) -> io::Result<Option<Receipt>> {
    let mut control = [MaybeUninit::<u64>::uninit(); 16];
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeros is a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the header points to buffers that outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let (now, wall) = clock::both();
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    let data = &buffer[..length as usize];
    let Some((head, _)) = data.split_at_checked(HEADER) else {
        return Ok(None);
    };
    let mut number = [0; 8];
    number.copy_from_slice(&head[..8]);
    let number = u64::from_le_bytes(number) as usize;
    let as_sent = |(index, byte): (usize, &u8)| *byte == pattern(number, index);
    let intact = data.len() == size
        && head[8..] == (size as u32).to_le_bytes()
        && data.iter().enumerate().skip(HEADER).all(as_sent);
    // SAFETY: the kernel filled in the control messages of this header.
    let ancillary = unsafe { ancillary(&message) };
    // The kernel stamps by the wall clock; the age of the stamp is the same by either.
    let at = ancillary
        .stamp
        .map_or(now, |stamp| now.saturating_sub(wall.saturating_sub(stamp)));
    Ok(Some(Receipt {
        number,
        at,
        tos: ancillary.tos,
        intact,
    }))
}

/// What comes beside the data.
#[derive(Default)]
struct Ancillary {
    /// TOS or traffic class.
    tos: u8,
    /// When the kernel received it, CLOCK_REALTIME ns.
    stamp: Option<u64>,
}

/// Reads the control messages.
///
/// # Safety
/// `message` must be as recvmsg left it, its control buffer alive.
unsafe fn ancillary(message: &libc::msghdr) -> Ancillary {
    let mut found = Ancillary::default();
    // SAFETY: the caller's; the macros walk within `msg_controllen`.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            let data = libc::CMSG_DATA(control);
            match (control.cmsg_level, control.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => found.tos = *data,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    found.tos = data.cast::<i32>().read_unaligned() as u8;
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let stamp = data.cast::<libc::timespec>().read_unaligned();
                    found.stamp = Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, control);
        }
    }
    found
}

/// What a host's kernel counted of UDP under a name of /proc/net/snmp: `InCsumErrors`, `RcvbufErrors`, ….
pub fn counted(host: &Host, counter: &str) -> Result<u64> {
    let text = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
    let place = names
        .split(' ')
        .position(|name| name == counter)
        .with_context(|| format!("UDP has no counter {counter}"))?;
    let value = values.split(' ').nth(place);
    Ok(value
        .with_context(|| format!("{counter} has no value"))?
        .parse()?)
}
