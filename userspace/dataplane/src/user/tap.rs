//! A TAP device that passes super-packets whole (`drivers/net/tun.c`).

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd},
        unix::fs::OpenOptionsExt as _,
    },
};

use crate::netlink::{Netlink, NetlinkError};

/// `tun_net_init`: the largest MTU of a TAP.
const MTU: u32 = 65_521;
/// Packets that wait for a thread in the kernel, at most, in each queue: a burst of a flow has no other one. Room for them
/// takes 128 KiB.
const QUEUE: u32 = 16_384;
/// `_IOR('T', 224, int)` of linux/if_tun.h (4.16); libc has it for some targets only.
const TUNSETSTEERINGEBPF: u32 = 0x8004_54e0;

/// Why a TAP could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The device node.
    #[error("opening /dev/net/tun: {0} (CONFIG_TUN; module tun)")]
    Open(io::Error),
    /// An ioctl.
    #[error("making the TAP {name} ({ioctl}): {source}")]
    Ioctl {
        /// The device.
        name: String,
        /// Which request.
        ioctl: &'static str,
        source: io::Error,
    },
    /// Its settings.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// It vanished while it was set up.
    #[error("{0} has vanished while it was set up")]
    Vanished(String),
}

/// A TAP; the device goes when the last of its queues is dropped.
#[derive(Debug)]
pub struct Tap {
    queues: Vec<Queue>,
    index: u32,
}

impl Tap {
    /// Makes one with so many queues in the current namespace, down; `index` 0 lets the kernel choose. `steer` is the program
    /// that chooses a packet's queue if there are several: the kernel takes the remainder of its result.
    pub fn new(
        netlink: &mut Netlink,
        name: &str,
        index: u32,
        alias: &str,
        queues: usize,
        steer: Option<BorrowedFd<'_>>,
    ) -> Result<Self, TapError> {
        let failed = |ioctl| {
            let name = name.to_string();
            move |source| TapError::Ioctl { name, ioctl, source }
        };
        let mut files = Vec::new();
        for queue in 0..queues.max(1) {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open("/dev/net/tun")
                .map_err(TapError::Open)?;
            if index != 0 && queue == 0 {
                let index = index.cast_signed();
                // SAFETY: the request reads an int.
                ioctl(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFINDEX as _, &raw const index) })
                    .map_err(failed("TUNSETIFINDEX"))?;
            }
            // SAFETY: all-zero bytes are a valid ifreq.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
                *to = from as libc::c_char;
            }
            let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
            let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
            request.ifr_ifru.ifru_flags = flags as i16;
            // SAFETY: the request reads and writes an ifreq.
            ioctl(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })
                .map_err(failed("TUNSETIFF"))?;
            files.push(file);
        }
        // These are the device's, whichever queue they are asked of.
        let file = &files[0];
        offload(file).map_err(failed("TUNSETOFFLOAD"))?;
        if let Some(steer) = steer.filter(|_| queues > 1) {
            let program = steer.as_raw_fd();
            // SAFETY: the request reads an int.
            ioctl(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETSTEERINGEBPF as _, &raw const program) })
                .map_err(failed("TUNSETSTEERINGEBPF"))?;
        }
        netlink.set_alias(name, alias)?;
        netlink.set_quiet(name)?;
        netlink.set_mtu(name, MTU)?;
        netlink.set_queue_len(name, QUEUE)?;
        let link = netlink
            .link(name)?
            .ok_or_else(|| TapError::Vanished(name.into()))?;
        netlink.set_noqueue(link.index)?;
        let interface = link.index;
        Ok(Self {
            queues: files.into_iter().map(|file| Queue { file, interface }).collect(),
            index: interface,
        })
    }

    /// Its interface index.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Another handle of its first queue, to write to it. It keeps the device, too.
    pub(crate) fn writer(&self) -> io::Result<Queue> {
        let first = self.queues.first().ok_or(io::ErrorKind::NotFound)?;
        Ok(Queue {
            file: first.file.try_clone()?,
            interface: self.index,
        })
    }

    /// Its queues, which are all that keeps the device but for [writers](Self::writer).
    pub(crate) fn into_queues(self) -> Vec<Queue> {
        self.queues
    }
}

/// One queue of a TAP. What is written to it, the kernel receives at once; it receives what the device is sent.
#[derive(Debug)]
pub(crate) struct Queue {
    file: File,
    interface: u32,
}

impl Queue {
    /// The TAP's interface index.
    pub(crate) fn interface(&self) -> u32 {
        self.interface
    }

    /// Reads a packet with its virtio_net header into two buffers, the second one's use beginning
    /// where the first is full. `None` if there is none.
    pub(crate) fn receive(&self, head: &mut [u8], tail: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read_vectored(&mut [IoSliceMut::new(head), IoSliceMut::new(tail)]) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a packet with its virtio_net header: the stack receives it before this returns.
    pub(crate) fn send(&self, head: &[u8], tail: &[u8]) -> io::Result<()> {
        (&self.file)
            .write_vectored(&[IoSlice::new(head), IoSlice::new(tail)])
            .map(drop)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// All that this kernel takes: checksums and segmentation stay undone until the packet leaves.
fn offload(file: &File) -> io::Result<()> {
    const CSUM: u32 = 0x01;
    const TSO: u32 = 0x02 | 0x04 | 0x08;
    const USO: u32 = 0x20 | 0x40; // 6.2
    let set = |flags: u32| {
        // SAFETY: the request takes its argument by value.
        ioctl(unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                libc::TUNSETOFFLOAD as _,
                libc::c_ulong::from(flags),
            )
        })
    };
    set(CSUM | TSO | USO).or_else(|_| set(CSUM | TSO))
}

fn ioctl(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
