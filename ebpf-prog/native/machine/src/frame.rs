//! A frame while a program runs on it.

use crate::bindings::__sk_buff;

/// A device that a frame goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Interface index; 0: it is consumed.
    pub device: u32,
    /// To the device's receiving side.
    pub received: bool,
}

/// A frame's context, and where its bytes are. The first [`bytes`](Self::new) of it lie in one piece, the rest in another.
#[repr(C)]
pub struct Frame {
    /// Comes first: the programs know it by this.
    pub skb: __sk_buff,
    first: *mut u8,
    first_len: usize,
    rest: *mut u8,
    rest_len: usize,
    /// Where a redirect sends it,
    pub redirected: Way,
    /// and so many more copies of it as it is when the program ends to this device.
    pub clones: u32,
    pub cloned_to: u32,
}

impl Frame {
    /// Of these bytes; the context is to be filled in. It must not outlive them, nor they be used meanwhile. As in the kernel
    /// (`NET_IP_ALIGN`), the first byte lies two off a word, so that the fields behind the Ethernet header are aligned.
    #[must_use]
    pub fn new(first: &mut [u8], rest: &mut [u8]) -> Self {
        debug_assert_eq!(first.as_ptr() as usize % 4, 2);
        let skb = __sk_buff {
            len: (first.len() + rest.len()) as u32,
            data: first.as_mut_ptr() as usize,
            data_end: first.as_mut_ptr_range().end as usize,
            ..__sk_buff::default()
        };
        Self {
            skb,
            first: first.as_mut_ptr(),
            first_len: first.len(),
            rest: rest.as_mut_ptr(),
            rest_len: rest.len(),
            redirected: Way {
                device: 0,
                received: false,
            },
            clones: 0,
            cloned_to: 0,
        }
    }

    /// Where so many bytes from `offset` on lie, piece by piece; `None` if the frame is too short.
    fn pieces(&self, offset: usize, length: usize) -> Option<[(*mut u8, usize); 2]> {
        let end = offset.checked_add(length)?;
        if end > self.first_len + self.rest_len {
            return None;
        }
        let in_first = self.first_len.saturating_sub(offset).min(length);
        let from = offset.saturating_sub(self.first_len);
        // SAFETY: both lie within their pieces, or one behind, with a length of zero.
        Some(unsafe {
            [
                (self.first.add(offset.min(self.first_len)), in_first),
                (self.rest.add(from.min(self.rest_len)), length - in_first),
            ]
        })
    }

    /// Copies bytes out of it; whether it has so many.
    ///
    /// # Safety
    /// `to` must have room for `length` bytes.
    pub(crate) unsafe fn load(&self, offset: usize, to: *mut u8, length: usize) -> bool {
        let Some([(first, in_first), (rest, in_rest)]) = self.pieces(offset, length) else {
            return false;
        };
        // SAFETY: the caller's; they lie within their pieces.
        unsafe {
            to.copy_from(first, in_first);
            to.add(in_first).copy_from(rest, in_rest);
        }
        true
    }

    /// Copies bytes into it; whether it has so many.
    ///
    /// # Safety
    /// `from` must have `length` bytes.
    pub(crate) unsafe fn store(&mut self, offset: usize, from: *const u8, length: usize) -> bool {
        let Some([(first, in_first), (rest, in_rest)]) = self.pieces(offset, length) else {
            return false;
        };
        // SAFETY: as above.
        unsafe {
            first.copy_from(from, in_first);
            rest.copy_from(from.add(in_first), in_rest);
        }
        true
    }
}
