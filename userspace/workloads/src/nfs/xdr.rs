//! Reading XDR (RFC 4506) from bytes of strangers, without copying and without trusting a length.
//!
//! Model: a cursor over a slice. Every variable length is checked against a limit and against what
//! is left *before* anything is allocated. Writing is left to `nfs3_types`, whose values we make.

/// What is left to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// Why bytes are not the XDR that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The data ends too early.
    #[error("the message ends {0} bytes too early")]
    Short(usize),
    /// A length is beyond what the protocol allows there.
    #[error("a length of {length} bytes; at most {limit} are allowed there")]
    TooLong {
        /// Length on the wire.
        length: usize,
        /// The protocol's limit.
        limit: usize,
    },
    /// A number has no meaning there.
    #[error("the value {0} has no meaning there")]
    Value(u32),
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(XdrError::Value(other)),
        }
    }

    /// Bytes of fixed length; a multiple of 4, so without padding.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        match self.0.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(*taken)
            }
            None => Err(XdrError::Short(N - self.0.len())),
        }
    }

    /// Bytes of variable length, with their padding.
    pub(crate) fn opaque(&mut self, limit: usize) -> Result<&'a [u8], XdrError> {
        let length = self.u32()? as usize;
        if length > limit {
            return Err(XdrError::TooLong { length, limit });
        }
        let padded = length.next_multiple_of(4);
        let (taken, rest) = self
            .0
            .split_at_checked(padded)
            .ok_or_else(|| XdrError::Short(padded - self.0.len()))?;
        self.0 = rest;
        Ok(&taken[..length])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_kept_crate_writes() {
        use nfs3_types::xdr_codec::{Opaque, Pack};
        let mut bytes = Vec::new();
        7_u32.pack(&mut bytes).unwrap();
        Opaque::borrowed(b"hello").pack(&mut bytes).unwrap();
        (1_u64 << 40).pack(&mut bytes).unwrap();
        true.pack(&mut bytes).unwrap();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.opaque(5), Ok(&b"hello"[..]));
        assert_eq!(reader.u64(), Ok(1 << 40));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.u32(), Err(XdrError::Short(4)));
    }

    #[test]
    fn a_huge_length_allocates_nothing() {
        let bytes = u32::MAX.to_be_bytes();
        assert_eq!(
            Reader::new(&bytes).opaque(64),
            Err(XdrError::TooLong {
                length: u32::MAX as usize,
                limit: 64
            })
        );
        assert!(matches!(
            Reader::new(&bytes).opaque(usize::MAX),
            Err(XdrError::Short(_))
        ));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), limit in 0..100_usize) {
            let mut reader = Reader::new(&bytes);
            while reader.opaque(limit).is_ok() && !reader.rest().is_empty() {}
            prop_assert!(reader.rest().len() <= bytes.len());
        }
    }
}
