//! The files that a load works on: making them, and taking them away again.
//!
//! Model (SFS): 10 MB of files for each operation per second of the requested rate, times a scale
//! factor, one tenth of it accessed; 30 files to a directory, two symbolic links in each. Files come
//! in decks of 100, so the sizes are distributed exactly; there is at least one accessed deck.
//! Everything lives in a directory of its own below the export. It is made by us or empty, or
//! was left over by us (then it holds [`MARKER`]) and `reuse` was asked for; of what is in it only
//! names of our pattern are ever removed.

mod calls;

use std::sync::Arc;

use nfs3_types::nfs3::{nfs_fh3, nfsstat3};
use perturb_stats::SplitMix64;
use tokio::task::JoinSet;

use self::calls::{
    fill, free_bytes, largest_write, list, lookup, make_directory, make_file, make_link, remove_name,
};
use super::{
    client::{CallError, Client},
    procedure::Procedure,
    sizes::{self, DECK_FILES, deck_bytes, shuffle},
    stop::Stop,
};

/// The file that says that a directory is ours.
pub const MARKER: &str = ".perturb-data-set";
const FILES_PER_DIRECTORY: usize = 30;
const LINKS_PER_DIRECTORY: usize = 2;
/// SFS' rule, bytes per operation per second.
const BYTES_PER_RATE: f64 = 10e6;
/// SFS' rule, share of the data that is accessed.
const ACCESSED: f64 = 0.1;
/// What an accessed file can grow by, at most, before appends start over.
pub(super) const GROWTH_LIMIT: u64 = 144 * 1024;
/// Directories made or removed at a time, on each connection.
const AT_A_TIME: usize = 16;
/// Pieces in which files are written, if the server takes that much.
const PIECE: u32 = 32 * 1024;

/// How large a data set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Extent {
    /// Files in all.
    pub files: u64,
    /// Files that the load accesses.
    pub accessed_files: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that the load accesses.
    pub accessed_bytes: u64,
}

/// Why there is no data set, or it could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum DataSetError {
    /// The directory holds something.
    #[error(
        "directory `{0}` of the export is not empty; choose another with --directory, or give --reuse if an \
         earlier run of perturb left it behind"
    )]
    NotEmpty(String),
    /// The directory holds something that is not ours.
    #[error(
        "directory `{directory}` of the export was not made by perturb (it lacks `{MARKER}`); choose another with --directory"
    )]
    NotOurs {
        /// The directory.
        directory: String,
    },
    /// The server has no room.
    #[error(
        "the data set needs {needed} bytes and the export has {free}; lower --scale (it is {scale}) or --rate, \
         or make room"
    )]
    NoRoom {
        /// Bytes it takes, with what it grows by.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// The scale factor in use.
        scale: f64,
    },
    /// The server takes no changes.
    #[error("the export is read-only; a load needs a directory of its own to write to")]
    ReadOnly,
    /// We may not write there.
    #[error("user {uid} may not write to the export; change its permissions, or squash to a user who may")]
    Forbidden {
        /// The user that AUTH_SYS claimed.
        uid: u32,
    },
    /// A call got no result.
    #[error("{step} `{name}`: {reason}")]
    Call {
        /// What was tried.
        step: Procedure,
        /// On what.
        name: String,
        /// Why it failed.
        reason: CallError,
    },
    /// The server reported an error.
    #[error("{step} `{name}`: the server says {status}")]
    Status {
        /// What was tried.
        step: Procedure,
        /// On what.
        name: String,
        /// What it said.
        status: nfsstat3,
    },
    /// The server made something and does not say what.
    #[error("{step} `{name}`: the server neither returns a handle nor finds the name")]
    NoHandle {
        /// What was tried.
        step: Procedure,
        /// On what.
        name: String,
    },
    /// The user stopped it.
    #[error("stopped while making the data set")]
    Stopped,
}

/// A data set on a server.
#[derive(Debug)]
pub(super) struct DataSet {
    pub(super) root: nfs_fh3,
    pub(super) directories: Vec<nfs_fh3>,
    pub(super) files: Vec<File>,
    pub(super) links: Vec<nfs_fh3>,
}

/// A file that the load accesses.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) handle: nfs_fh3,
    /// Place in `directories`.
    pub(super) directory: usize,
    pub(super) name: String,
    pub(super) size: u64,
}

/// Where a data set is to be.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) root: nfs_fh3,
    pub(super) directory: String,
}

/// The directory of a data set, ours until it is removed.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    place: Place,
    handle: nfs_fh3,
}

struct Planned {
    size: u64,
    accessed: bool,
}

impl Extent {
    /// SFS' rule for a rate and a scale factor.
    #[must_use]
    pub fn of(rate: f64, scale: f64) -> Self {
        let decks = (rate * scale * BYTES_PER_RATE / deck_bytes() as f64)
            .round()
            .max(1.0);
        let accessed = (decks * ACCESSED).round().max(1.0);
        let files = |decks: f64| decks as u64 * DECK_FILES as u64;
        let bytes = |decks: f64| decks as u64 * deck_bytes();
        Self {
            files: files(decks),
            accessed_files: files(accessed),
            bytes: bytes(decks),
            accessed_bytes: bytes(accessed),
        }
    }

    /// Room it takes on a server that allots 4 KiB at a time, once the accessed files have grown.
    fn room(&self) -> u64 {
        self.bytes + 4096 * self.files + self.accessed_files * GROWTH_LIMIT
    }
}

/// Makes the directory, or takes over one that we left behind.
pub(super) async fn claim(client: &Client, place_: Place, reuse: bool) -> Result<Claim, DataSetError> {
    let name = &place_.directory;
    let existing = lookup(client, &place_.root, name).await?;
    let (handle, fresh) = match existing {
        None => (make_directory(client, &place_.root, name).await?, true),
        Some(handle) => {
            let names = list(client, &handle, name).await?;
            if !names.is_empty() && !reuse {
                return Err(DataSetError::NotEmpty(name.clone()));
            }
            if !names.is_empty() && !names.iter().any(|name| name == MARKER) {
                return Err(DataSetError::NotOurs {
                    directory: name.clone(),
                });
            }
            (handle, names.is_empty())
        }
    };
    if fresh {
        make_file(client, &handle, MARKER).await?;
    }
    let claim = Claim {
        place: place_,
        handle,
    };
    if !fresh {
        clear(std::slice::from_ref(client), &claim).await?;
    }
    Ok(claim)
}

/// Makes the files. `progress` hears of every file made.
pub(super) async fn make(
    clients: &[Client],
    claim: &Claim,
    extent: Extent,
    scale: f64,
    seed: u64,
    stop: &Stop,
    progress: &(impl Fn(u64) + Sync),
) -> Result<DataSet, DataSetError> {
    let first = &clients[0];
    let free = free_bytes(first, &claim.place.root).await?;
    if extent.room() > free {
        return Err(DataSetError::NoRoom {
            needed: extent.room(),
            free,
            scale,
        });
    }
    let piece = largest_write(first, &claim.place.root).await?.min(PIECE);
    let mut random = SplitMix64::new(seed);
    let mut deck = sizes::files();
    let mut plan: Vec<Planned> = (0..extent.files)
        .map(|index| Planned {
            size: deck.deal(&mut random),
            accessed: index < extent.accessed_files,
        })
        .collect();
    shuffle(&mut plan, &mut random);

    let mut made = DataSet {
        root: claim.place.root.clone(),
        directories: Vec::new(),
        files: Vec::new(),
        links: Vec::new(),
    };
    let mut tasks = JoinSet::new();
    let mut done = 0;
    let parent = Arc::new(claim.handle.clone());
    let mut take = |result: Result<Made, DataSetError>| -> Result<(), DataSetError> {
        let directory = result?;
        done += directory.count;
        progress(done);
        let place = made.directories.len();
        made.directories.push(directory.handle);
        made.links.extend(directory.links);
        made.files.extend(directory.files.into_iter().map(|file| File {
            directory: place,
            ..file
        }));
        Ok(())
    };
    let mut failed = None;
    for (index, files) in plan.chunks(FILES_PER_DIRECTORY).enumerate() {
        if stop.is_set() {
            failed = Some(DataSetError::Stopped);
            break;
        }
        let client = clients[index % clients.len()].clone();
        let files: Vec<(u64, bool)> = files.iter().map(|file| (file.size, file.accessed)).collect();
        tasks.spawn(make_full_directory(
            client,
            Arc::clone(&parent),
            index,
            files,
            piece,
        ));
        if tasks.len() >= AT_A_TIME * clients.len()
            && let Some(joined) = tasks.join_next().await
            && let Err(error) = take(joined.unwrap_or(Err(DataSetError::Stopped)))
        {
            failed = Some(error);
            break;
        }
    }
    // After a failure, too, those that have begun end before anything is removed: a call that is on its way
    // would make its file afterwards.
    while let Some(joined) = tasks.join_next().await {
        if let Err(error) = take(joined.unwrap_or(Err(DataSetError::Stopped))) {
            failed.get_or_insert(error);
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(made),
    }
}

/// Removes all that loads have made, and the directory unless somebody put something into it.
pub(super) async fn remove(clients: &[Client], claim: &Claim) -> Result<(), DataSetError> {
    clear(clients, claim).await?;
    let first = &clients[0];
    remove_name(first, Procedure::Remove, &claim.handle, MARKER).await?;
    match remove_name(first, Procedure::Rmdir, &claim.place.root, &claim.place.directory).await {
        Err(DataSetError::Status {
            status: nfsstat3::NFS3ERR_NOTEMPTY | nfsstat3::NFS3ERR_EXIST,
            ..
        }) => Ok(()),
        other => other,
    }
}

async fn clear(clients: &[Client], claim: &Claim) -> Result<(), DataSetError> {
    let names = list(&clients[0], &claim.handle, &claim.place.directory).await?;
    let parent = Arc::new(claim.handle.clone());
    let mut tasks = JoinSet::new();
    for (index, name) in names.into_iter().filter(|name| is_ours(name, &['d'])).enumerate() {
        let client = clients[index % clients.len()].clone();
        tasks.spawn(remove_directory(client, Arc::clone(&parent), name));
        if tasks.len() >= AT_A_TIME * clients.len()
            && let Some(joined) = tasks.join_next().await
        {
            joined.unwrap_or(Err(DataSetError::Stopped))?;
        }
    }
    while let Some(joined) = tasks.join_next().await {
        joined.unwrap_or(Err(DataSetError::Stopped))?;
    }
    Ok(())
}

async fn remove_directory(client: Client, parent: Arc<nfs_fh3>, name: String) -> Result<(), DataSetError> {
    let Some(handle) = lookup(&client, &parent, &name).await? else {
        return Ok(());
    };
    // A server may skip names when others are removed while it lists; so until nothing is left.
    loop {
        let mut ours = list(&client, &handle, &name).await?;
        ours.retain(|name| is_ours(name, &['f', 'l', 'c']));
        if ours.is_empty() {
            break;
        }
        for file in ours {
            remove_name(&client, Procedure::Remove, &handle, &file).await?;
        }
    }
    match remove_name(&client, Procedure::Rmdir, &parent, &name).await {
        Err(DataSetError::Status {
            status: nfsstat3::NFS3ERR_NOTEMPTY | nfsstat3::NFS3ERR_EXIST,
            ..
        }) => Ok(()),
        other => other,
    }
}

/// A name that a load gives: a letter and digits.
fn is_ours(name: &str, letters: &[char]) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| letters.contains(&first))
        && name.len() > 1
        && characters.all(|character| character.is_ascii_digit())
}

pub(super) fn created_name(number: u64) -> String {
    format!("c{number:06}")
}

struct Made {
    handle: nfs_fh3,
    files: Vec<File>,
    links: Vec<nfs_fh3>,
    count: u64,
}

async fn make_full_directory(
    client: Client,
    parent: Arc<nfs_fh3>,
    index: usize,
    plan: Vec<(u64, bool)>,
    piece: u32,
) -> Result<Made, DataSetError> {
    let handle = make_directory(&client, &parent, &format!("d{index:06}")).await?;
    let mut made = Made {
        handle,
        files: Vec::new(),
        links: Vec::new(),
        count: plan.len() as u64,
    };
    for (number, (size, accessed)) in plan.into_iter().enumerate() {
        let name = format!("f{number:06}");
        let file = make_file(&client, &made.handle, &name).await?;
        fill(&client, &file, &name, size, piece).await?;
        if accessed {
            made.files.push(File {
                handle: file,
                directory: 0,
                name,
                size,
            });
        }
    }
    for number in 0..LINKS_PER_DIRECTORY {
        let name = format!("l{number:06}");
        let link = make_link(&client, &made.handle, &name, &format!("f{number:06}")).await?;
        made.links.push(link);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extent_is_sfs_rule() {
        let extent = Extent::of(1000.0, 1.0);
        assert!((extent.bytes as f64 / 10e9 - 1.0).abs() < 1e-3);
        assert!((extent.accessed_bytes as f64 / 1e9 - 1.0).abs() < 1e-2);
        let least = Extent::of(10.0, 0.001);
        assert_eq!((least.files, least.accessed_files), (100, 100));
    }

    #[test]
    fn only_our_names_are_ours() {
        assert!(is_ours("d000001", &['d']) && is_ours("c1", &['f', 'c']));
        for name in ["d", "data", "f12x", "notes.txt", "", MARKER, "e000001"] {
            assert!(!is_ours(name, &['d', 'f', 'l', 'c']), "{name}");
        }
    }
}
