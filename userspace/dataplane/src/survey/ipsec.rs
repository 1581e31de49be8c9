//! The IPsec security associations of the current namespace, and which devices work for them.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};

/// linux/xfrm.h: XFRM_MSG_GETSA, XFRM_MSG_NEWSA (an association follows), XFRMA_OFFLOAD_DEV.
const GET: u16 = 0x12;
const NEW: u16 = 0x10;
const OFFLOAD_DEVICE: u16 = 28;
/// linux/netlink.h: NLMSG_ERROR, NLMSG_DONE.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Sizes of `nlmsghdr`, `nlattr`, `xfrm_usersa_id` and `xfrm_usersa_info`.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
const IDENTITY: usize = 24;
const ASSOCIATION: usize = 224;

/// For each association, the interface whose hardware works for it, if any does. None where the kernel has no IPsec.
pub(super) fn associations() -> io::Result<Vec<Option<u32>>> {
    let mut socket = match Socket::new(NETLINK_XFRM) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Vec::new()),
        other => other?,
    };
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = [0; HEADER + IDENTITY];
    request[..4].copy_from_slice(&((HEADER + IDENTITY) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&GET.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    socket.send(&request, 0)?;
    let mut found = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        if !read(&datagram, &mut found)? {
            return Ok(found);
        }
    }
}

/// Reads the messages of a datagram; whether more are to come.
fn read(mut rest: &[u8], found: &mut Vec<Option<u32>>) -> io::Result<bool> {
    while let Some(kind) = half(rest, 4) {
        let message = bounded(rest, HEADER, word(rest, 0))?;
        match kind {
            DONE => return Ok(false),
            ERROR => {
                let code = word(message, HEADER).unwrap_or_default().cast_signed();
                // Built without the user interface of IPsec.
                return match code {
                    0 => Ok(false),
                    code => Err(io::Error::from_raw_os_error(-code)),
                };
            }
            NEW => found.push(offload(message.get(HEADER + ASSOCIATION..).unwrap_or_default())?),
            _ => {}
        }
        rest = rest.get(message.len().next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// The interface in the attributes of an association.
fn offload(mut rest: &[u8]) -> io::Result<Option<u32>> {
    while let Some(kind) = half(rest, 2) {
        let attribute = bounded(rest, ATTRIBUTE, half(rest, 0).map(u32::from))?;
        if kind == OFFLOAD_DEVICE {
            return Ok(word(attribute, ATTRIBUTE));
        }
        rest = rest
            .get(attribute.len().next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Ok(None)
}

/// The first `length` bytes, which are at least a header.
fn bounded(bytes: &[u8], header: usize, length: Option<u32>) -> io::Result<&[u8]> {
    length
        .map(|length| length as usize)
        .filter(|&length| length >= header)
        .and_then(|length| bytes.get(..length))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    bytes.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::{ASSOCIATION, DONE, HEADER, NEW, OFFLOAD_DEVICE, read};

    fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; HEADER + ASSOCIATION];
        for (kind, value) in attributes {
            let length = 4 + value.len();
            body.extend((length as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let length = body.len() as u32;
        body[..4].copy_from_slice(&length.to_ne_bytes());
        body[4..6].copy_from_slice(&kind.to_ne_bytes());
        body
    }

    /// No kernel of the tests has hardware for IPsec: messages as `copy_user_offload` (net/xfrm/xfrm_user.c) writes them.
    #[test]
    fn offload_is_read() -> std::io::Result<()> {
        let mut device = 7_u32.to_ne_bytes().to_vec();
        device.extend([0; 4]);
        let mut datagram = message(NEW, &[(1, &[1, 2, 3]), (OFFLOAD_DEVICE, &device)]);
        datagram.extend(message(NEW, &[(1, &[1])]));
        let mut found = Vec::new();
        assert!(read(&datagram, &mut found)?);
        assert_eq!(found, [Some(7), None]);
        assert!(!read(&message(DONE, &[]), &mut found)?);
        // Cut short in an attribute.
        assert!(read(&datagram[..HEADER + ASSOCIATION + 2], &mut Vec::new()).is_err());
        Ok(())
    }
}
