//! Offloads, by the ethtool ioctl.

use std::{io, mem, os::fd::AsRawFd as _, os::unix::net::UnixDatagram};

/// An offload that can be switched (`linux/ethtool.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Offload {
    /// Checksums on transmission.
    TransmitChecksum = 0x17,
    /// Scatter-gather.
    ScatterGather = 0x19,
    /// TCP segmentation.
    TcpSegmentation = 0x1f,
    /// Generic segmentation.
    Segmentation = 0x24,
    /// Generic receive.
    Receive = 0x2c,
}

/// An offload is read by the command whose number is one less than that which sets it.
const READ: u32 = 1;

/// Switches an offload of an interface of the current namespace.
pub fn set(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    command(interface, offload as u32, u32::from(on)).map(drop)
}

/// Whether an interface of the current namespace has an offload switched on.
pub fn is_on(interface: &str, offload: Offload) -> io::Result<bool> {
    command(interface, offload as u32 - READ, 0).map(|data| data != 0)
}

/// A command with one number, which it may change.
fn command(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command, data };
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // Any socket reaches the device ioctls (`sock_ioctl`, `dev_ioctl`).
    let socket = UnixDatagram::unbound()?;
    // SAFETY: the request names a value that outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.data)
}
