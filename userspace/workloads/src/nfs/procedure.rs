//! The procedures of NFS version 3 (RFC 1813 section 3), by number and by name.

use serde::{Deserialize, Serialize};

/// A procedure of NFS version 3.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::FromRepr,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[repr(u32)]
pub enum Procedure {
    Null = 0,
    Getattr = 1,
    Setattr = 2,
    Lookup = 3,
    Access = 4,
    Readlink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    Mkdir = 9,
    Symlink = 10,
    Mknod = 11,
    Remove = 12,
    Rmdir = 13,
    Rename = 14,
    Link = 15,
    Readdir = 16,
    Readdirplus = 17,
    Fsstat = 18,
    Fsinfo = 19,
    Pathconf = 20,
    Commit = 21,
}

impl Procedure {
    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Whether doing it twice differs from doing it once.
    #[must_use]
    pub fn changes_names(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Mkdir
                | Self::Symlink
                | Self::Mknod
                | Self::Remove
                | Self::Rmdir
                | Self::Rename
                | Self::Link
        )
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn numbers_are_the_protocols() {
        for &procedure in Procedure::VARIANTS {
            assert_eq!(Procedure::from_repr(procedure.number()), Some(procedure));
            let theirs = nfs3_types::nfs3::NFS_PROGRAM::try_from(procedure.number()).unwrap();
            assert_eq!(
                theirs.to_string(),
                format!("NFSPROC3_{}", procedure.to_string().to_uppercase())
            );
        }
        assert_eq!(Procedure::from_repr(22), None);
    }
}
