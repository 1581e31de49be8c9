//! Offloads and time stamps, by the device ioctls.

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

/// linux/ethtool.h: ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS, ETHTOOL_GFEATURES, ETH_SS_FEATURES, ETH_GSTRING_LEN.
const SET_INFO: u32 = 0x37;
const STRINGS: u32 = 0x1b;
const FEATURES: u32 = 0x3a;
const FEATURE_NAMES: u32 = 4;
const NAME_LEN: usize = 32;
/// Of `ethtool_gstrings` and `ethtool_gfeatures`: what comes before their lists, and an element of the latter's, which
/// is four words: available, requested, active, never changed.
const STRINGS_HEADER: usize = 12;
const FEATURES_HEADER: usize = 8;
const FEATURES_BLOCK: usize = 16;
const ACTIVE: usize = 8;

/// Whether a feature of an interface of the current namespace is active, by its name in `ethtool -k`; `false` too if
/// this kernel knows no such feature.
pub fn feature(interface: &str, name: &str) -> io::Result<bool> {
    let mut info = [0_u32; 5];
    info[0] = SET_INFO;
    // The mask of sets is 64 bits wide.
    info[2..4].copy_from_slice(&words(1 << FEATURE_NAMES));
    // SAFETY: the command reads and writes an `ethtool_sset_info` with one count.
    unsafe { device(interface, libc::SIOCETHTOOL, info.as_mut_ptr().cast())? };
    let count = info[4] as usize;
    let mut strings = vec![0_u8; STRINGS_HEADER + count * NAME_LEN];
    header(&mut strings, &[STRINGS, FEATURE_NAMES, info[4]]);
    // SAFETY: the command writes as many names as there is room for.
    unsafe { device(interface, libc::SIOCETHTOOL, strings.as_mut_ptr().cast())? };
    let is_it = |text: &[u8]| text.split(|&byte| byte == 0).next() == Some(name.as_bytes());
    let Some(index) = strings[STRINGS_HEADER..].chunks_exact(NAME_LEN).position(is_it) else {
        return Ok(false);
    };
    let blocks = count.div_ceil(32);
    let mut features = vec![0_u8; FEATURES_HEADER + blocks * FEATURES_BLOCK];
    header(&mut features, &[FEATURES, blocks as u32]);
    // SAFETY: the command writes as many blocks as there is room for.
    unsafe { device(interface, libc::SIOCETHTOOL, features.as_mut_ptr().cast())? };
    let at = FEATURES_HEADER + index / 32 * FEATURES_BLOCK + ACTIVE;
    let active = features.get(at..at + 4).and_then(|word| word.try_into().ok());
    Ok(active.is_some_and(|word| u32::from_ne_bytes(word) >> (index % 32) & 1 != 0))
}

/// A 64-bit number as it lies in memory.
fn words(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

fn header(buffer: &mut [u8], words: &[u32]) {
    for (to, word) in buffer.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
}

/// Whether hardware stamps the packets that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeStamps {
    /// It does not.
    Off,
    /// It does, if the sender asks for it.
    On,
}

/// How an interface of the current namespace stamps what it sends (`SIOCGHWTSTAMP`).
pub fn time_stamps(interface: &str) -> io::Result<TimeStamps> {
    // linux/net_tstamp.h: flags, tx_type, rx_filter; HWTSTAMP_TX_OFF.
    const GET: libc::c_ulong = 0x89b1;
    const OFF: u32 = 0;
    let mut config = [0_u32; 3];
    // SAFETY: the request writes a `hwtstamp_config`.
    unsafe { device(interface, GET, config.as_mut_ptr().cast())? };
    Ok(if config[1] == OFF {
        TimeStamps::Off
    } else {
        TimeStamps::On
    })
}

/// A command with one number, which it may change.
fn command(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = [command, data];
    // SAFETY: the command reads and writes an `ethtool_value`.
    unsafe { device(interface, libc::SIOCETHTOOL, value.as_mut_ptr().cast())? };
    Ok(value[1])
}

/// A device ioctl.
///
/// # Safety
/// `data` must point to what the request reads and writes.
unsafe fn device(interface: &str, number: libc::c_ulong, data: *mut libc::c_char) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data;
    // Any socket reaches the device ioctls (`sock_ioctl`, `dev_ioctl`).
    let socket = UnixDatagram::unbound()?;
    // SAFETY: the caller's; the request lives as long as the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), number as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
