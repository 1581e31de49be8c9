//! Which file the next RPC is for.
//!
//! Model: the mix says which procedure, the sizes say how many RPCs it makes, and the object is
//! drawn uniformly from the accessed ones that are large enough. What concurrent requests change is
//! settled when they are planned: an append reserves its place, a created name belongs to nobody until
//! its creation has succeeded, and reads stay within what a file had from the start. So requests
//! under way together cannot spoil each other's results.
//! Files do not grow without end: a SETATTR cuts back the file that has been grown for longest, and
//! an append that would pass [`GROWTH_LIMIT`] starts over at the original end.

use std::collections::VecDeque;

use nfs3_types::nfs3::stable_how;
use perturb_stats::SplitMix64;

use super::{
    data_set::{DataSet, GROWTH_LIMIT, created_name},
    mix::{Drawing, Mix},
    operation::Request,
    procedure::Procedure,
    sizes::{self, BLOCK, Deck, Group},
};

/// Share of lookups that are for names that do not exist, in percent.
const MISSING_LOOKUP_PERCENT: u64 = 10;

pub(super) struct Planner {
    random: SplitMix64,
    drawing: Drawing,
    reads: Deck<Group>,
    writes: Deck<Group>,
    appends: Deck<bool>,
    /// Mixes without COMMIT write through.
    stable: stable_how,
    data: DataSet,
    /// Places in `data.files` by falling size.
    by_size: Vec<usize>,
    /// Bytes by which each file has grown.
    grown: Vec<u64>,
    /// Grown files, the longest-grown first, each once.
    to_cut: VecDeque<usize>,
    is_to_be_cut: Vec<bool>,
    /// Files written since they were last committed.
    uncommitted: VecDeque<usize>,
    /// Created files that nobody removes yet: directory and name.
    created: VecDeque<(usize, String)>,
    created_names: u64,
}

/// A request, and the created file that is known to exist once it has succeeded.
pub(super) struct Plan {
    pub(super) request: Request,
    pub(super) creates: Option<(usize, String)>,
}

impl From<Request> for Plan {
    fn from(request: Request) -> Self {
        Self {
            request,
            creates: None,
        }
    }
}

impl Planner {
    pub(super) fn new(mix: &Mix, data: DataSet, seed: u64) -> Self {
        let mut by_size: Vec<usize> = (0..data.files.len()).collect();
        by_size.sort_by_key(|file| std::cmp::Reverse(data.files[*file].size));
        let stable = if mix.percent(Procedure::Commit) > 0.0 {
            stable_how::UNSTABLE
        } else {
            stable_how::FILE_SYNC
        };
        Self {
            random: SplitMix64::new(seed),
            drawing: Drawing::new(mix),
            reads: sizes::reads(),
            writes: sizes::writes(),
            appends: sizes::appends(),
            stable,
            grown: vec![0; data.files.len()],
            is_to_be_cut: vec![false; data.files.len()],
            by_size,
            data,
            to_cut: VecDeque::new(),
            uncommitted: VecDeque::new(),
            created: VecDeque::new(),
            created_names: 0,
        }
    }

    /// Appends the RPCs of the next operation.
    pub(super) fn plan(&mut self, into: &mut VecDeque<Plan>) {
        let procedure = self.drawing.draw(&mut self.random);
        let before = into.len();
        match procedure {
            Procedure::Read => self.read(into),
            Procedure::Write => self.write(into),
            Procedure::Create => into.push_back(self.create()),
            single => into.push_back(self.single(single).into()),
        }
        self.drawing.charge(procedure, into.len() - before);
    }

    /// A created file exists now, and may be removed.
    pub(super) fn exists(&mut self, created: (usize, String)) {
        self.created.push_back(created);
    }

    fn single(&mut self, procedure: Procedure) -> Request {
        match procedure {
            Procedure::Getattr => Request::Getattr {
                object: self.any_file().handle.clone(),
            },
            Procedure::Access => Request::Access {
                object: self.any_file().handle.clone(),
            },
            Procedure::Lookup => self.lookup(),
            Procedure::Setattr => self.setattr(),
            Procedure::Readlink => {
                let link = self.random.below(self.data.links.len() as u64) as usize;
                Request::Readlink {
                    link: self.data.links[link].clone(),
                }
            }
            Procedure::Remove => self.remove(),
            Procedure::Readdir => Request::Readdir {
                directory: self.any_directory(),
            },
            Procedure::Readdirplus => Request::Readdirplus {
                directory: self.any_directory(),
            },
            Procedure::Fsstat => Request::Fsstat {
                root: self.data.root.clone(),
            },
            Procedure::Fsinfo => Request::Fsinfo {
                root: self.data.root.clone(),
            },
            Procedure::Commit => {
                let written = self.uncommitted.pop_front();
                let file = written.unwrap_or_else(|| self.any_place(0));
                Request::Commit {
                    file: self.data.files[file].handle.clone(),
                }
            }
            // A mix holds callable procedures only, and those with several RPCs are planned above.
            _ => Request::Null,
        }
    }

    fn read(&mut self, into: &mut VecDeque<Plan>) {
        let group = self.reads.deal(&mut self.random);
        let sizes: Vec<u32> = group.sizes(&mut self.random).collect();
        let wanted: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        let file = self.any_place(wanted);
        let (handle, size) = (self.data.files[file].handle.clone(), self.data.files[file].size);
        // Files smaller than the read are there only if no file is large enough: begin again.
        let start = self.block_within(size.saturating_sub(wanted));
        let mut offset = start;
        for count in sizes {
            if offset >= size {
                offset = 0;
            }
            let expected = u64::from(count).min(size - offset) as u32;
            into.push_back(
                Request::Read {
                    file: handle.clone(),
                    offset,
                    count,
                    expected,
                }
                .into(),
            );
            offset += u64::from(count);
        }
    }

    fn write(&mut self, into: &mut VecDeque<Plan>) {
        let group = self.writes.deal(&mut self.random);
        let sizes: Vec<u32> = group.sizes(&mut self.random).collect();
        let length: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        let append = self.appends.deal(&mut self.random);
        let file = self.any_place(if append { 0 } else { length });
        let size = self.data.files[file].size;
        let mut offset = if append {
            if self.grown[file] + length > GROWTH_LIMIT {
                self.grown[file] = 0;
            }
            size + self.grown[file]
        } else {
            self.block_within(size.saturating_sub(length))
        };
        let end = offset + length;
        if end > size {
            if !std::mem::replace(&mut self.is_to_be_cut[file], true) {
                self.to_cut.push_back(file);
            }
            self.grown[file] = self.grown[file].max(end - size);
        }
        if self.uncommitted.len() < self.data.files.len() {
            self.uncommitted.push_back(file);
        }
        for count in sizes {
            let file = self.data.files[file].handle.clone();
            into.push_back(
                Request::Write {
                    file,
                    offset,
                    count,
                    stable: self.stable,
                }
                .into(),
            );
            offset += u64::from(count);
        }
    }

    fn lookup(&mut self) -> Request {
        if self.random.below(100) < MISSING_LOOKUP_PERCENT {
            let name = format!("missing{:03}", self.random.below(1000));
            return Request::Lookup {
                directory: self.any_directory(),
                name,
                exists: false,
            };
        }
        let file = self.any_place(0);
        let file = &self.data.files[file];
        let directory = self.data.directories[file.directory].clone();
        Request::Lookup {
            directory,
            name: file.name.clone(),
            exists: true,
        }
    }

    fn setattr(&mut self) -> Request {
        match self.to_cut.pop_front() {
            Some(file) => {
                self.grown[file] = 0;
                self.is_to_be_cut[file] = false;
                let file = &self.data.files[file];
                Request::Setattr {
                    object: file.handle.clone(),
                    size: Some(file.size),
                }
            }
            None => Request::Setattr {
                object: self.any_file().handle.clone(),
                size: None,
            },
        }
    }

    fn create(&mut self) -> Plan {
        let directory = self.random.below(self.data.directories.len() as u64) as usize;
        let name = created_name(self.created_names);
        self.created_names += 1;
        let handle = self.data.directories[directory].clone();
        Plan {
            request: Request::Create {
                directory: handle,
                name: name.clone(),
            },
            creates: Some((directory, name)),
        }
    }

    fn remove(&mut self) -> Request {
        match self.created.pop_front() {
            Some((directory, name)) => Request::Remove {
                directory: self.data.directories[directory].clone(),
                name,
                exists: true,
            },
            // Nothing to remove yet: the call is made all the same, for a name that does not exist.
            None => Request::Remove {
                directory: self.any_directory(),
                name: created_name(u64::MAX),
                exists: false,
            },
        }
    }

    fn any_file(&mut self) -> &super::data_set::File {
        let place = self.any_place(0);
        &self.data.files[place]
    }

    fn any_directory(&mut self) -> nfs3_types::nfs3::nfs_fh3 {
        let place = self.random.below(self.data.directories.len() as u64) as usize;
        self.data.directories[place].clone()
    }

    /// A file of at least `size` bytes, or the largest.
    fn any_place(&mut self, size: u64) -> usize {
        let large = self
            .by_size
            .partition_point(|file| self.data.files[*file].size >= size)
            .max(1);
        self.by_size[self.random.below(large as u64) as usize]
    }

    /// The start of a random block, at most `last`.
    fn block_within(&mut self, last: u64) -> u64 {
        self.random.below(last / u64::from(BLOCK) + 1) * u64::from(BLOCK)
    }
}
