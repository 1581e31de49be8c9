//! From `HOST:/export` to a file handle: port mapper (RFC 1833, version 2) and mount (RFC 1813, appendix I).

use std::net::SocketAddr;

use nfs3_types::{
    mount::{MOUNT_PROGRAM, dirpath, mountres3, mountstat3},
    nfs3::nfs_fh3,
    portmap::{IPPROTO_TCP, IPPROTO_UDP, PMAP_PORT, PMAP_PROG, mapping},
    xdr_codec::{Opaque, Void},
};

use super::{CallError, Client, Options, Program, Refusal, Transport};
use crate::nfs::rpc;

/// What to mount from where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Export {
    /// Name or address of the server.
    pub host: String,
    /// Path it exports.
    pub path: String,
}

/// Ports to use instead of asking the port mapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Ports {
    /// Where NFS is served.
    pub nfs: Option<u16>,
    /// Where mount is served. Without it, the NFS port is tried if that is given.
    pub mount: Option<u16>,
}

/// Why there is no file handle.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The text is not `HOST:/PATH`.
    #[error("server `{0}` is not HOST:/PATH; write for example 192.0.2.7:/export or [2001:db8::7]:/export")]
    Syntax(String),
    /// The name has no address.
    #[error("the name `{host}` cannot be resolved: {reason}")]
    Unresolved {
        host: String,
        /// The resolver's reason.
        reason: std::io::Error,
    },
    /// The name has no address at all.
    #[error("the name `{0}` has no address")]
    NoAddress(String),
    /// The program is not registered.
    #[error(
        "the port mapper of {peer} knows no {name} over {transport:?}; start it, or give its port \
         (--nfs-port, --mount-port)"
    )]
    NotRegistered {
        /// The port mapper.
        peer: SocketAddr,
        /// The program's name.
        name: &'static str,
        /// The transport it was asked for.
        transport: Transport,
    },
    /// The server refuses the mount.
    #[error("{peer} does not let us mount `{path}`: {status} ({})", advice(*status))]
    Refused {
        /// The mount server.
        peer: SocketAddr,
        /// The path asked for.
        path: String,
        /// Its answer.
        status: mountstat3,
    },
    /// A call failed.
    #[error("{step}: {reason}")]
    Call {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        reason: CallError,
    },
}

fn advice(status: mountstat3) -> &'static str {
    match status {
        mountstat3::MNT3ERR_NOENT => "is it exported? try the export's own path",
        mountstat3::MNT3ERR_ACCES | mountstat3::MNT3ERR_PERM => {
            "export it to this host; if it asks for a privileged port, export with `insecure` or use --reserved-ports; \
             NFS-Ganesha may want the export's pseudo path (`Pseudo` in its configuration) instead of its `Path`"
        }
        _ => "see the server's log",
    }
}

impl std::str::FromStr for Export {
    type Err = MountError;

    fn from_str(text: &str) -> Result<Self, MountError> {
        let syntax = || MountError::Syntax(text.to_owned());
        let (host, path) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").ok_or_else(syntax)?,
            None => text.split_once(':').ok_or_else(syntax)?,
        };
        if host.is_empty() || !path.starts_with('/') {
            return Err(syntax());
        }
        Ok(Self {
            host: host.to_owned(),
            path: path.to_owned(),
        })
    }
}

impl std::fmt::Display for Export {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.path)
        } else {
            write!(formatter, "{}:{}", self.host, self.path)
        }
    }
}

/// Mounts, and returns where NFS is served and the handle of the export's root.
pub async fn mount(
    export: &Export,
    ports: Ports,
    options: &Options,
) -> Result<(SocketAddr, nfs_fh3), MountError> {
    let host = resolve(&export.host).await?;
    let at = |port: u16| SocketAddr::new(host.ip(), port);
    let nfs = match ports.nfs {
        Some(port) => at(port),
        None => at(ask_port_mapper(at(PMAP_PORT), rpc::NFS, "NFS version 3", options).await?),
    };
    let mounting = mount_server(at, ports, options).await?;
    let path = dirpath(Opaque::borrowed(export.path.as_bytes()));
    let reply = mounting
        .call::<mountres3<'_>>(rpc::MOUNT, MOUNT_PROGRAM::MOUNTPROC3_MNT as u32, "mount", &path)
        .await
        .map_err(|reason| MountError::Call {
            step: "mounting",
            reason,
        })?;
    match reply.result {
        mountres3::Ok(mounted) => {
            let handle = Opaque::owned(mounted.fhandle.0.into_owned());
            Ok((nfs, nfs_fh3 { data: handle }))
        }
        mountres3::Err(status) => Err(MountError::Refused {
            peer: mounting.peer(),
            path: export.path.clone(),
            status,
        }),
    }
}

/// Tells the server that the export is no longer used. It only keeps a list of users by it.
pub async fn unmount(export: &Export, ports: Ports, options: &Options) -> Result<(), MountError> {
    let host = resolve(&export.host).await?;
    let mounting = mount_server(|port| SocketAddr::new(host.ip(), port), ports, options).await?;
    let path = dirpath(Opaque::borrowed(export.path.as_bytes()));
    mounting
        .call::<Void>(rpc::MOUNT, MOUNT_PROGRAM::MOUNTPROC3_UMNT as u32, "umount", &path)
        .await
        .map_err(|reason| MountError::Call {
            step: "unmounting",
            reason,
        })?;
    Ok(())
}

async fn resolve(host: &str) -> Result<SocketAddr, MountError> {
    let mut addresses =
        tokio::net::lookup_host((host, 0))
            .await
            .map_err(|reason| MountError::Unresolved {
                host: host.to_owned(),
                reason,
            })?;
    addresses
        .next()
        .ok_or_else(|| MountError::NoAddress(host.to_owned()))
}

async fn mount_server(
    at: impl Fn(u16) -> SocketAddr,
    ports: Ports,
    options: &Options,
) -> Result<Client, MountError> {
    let failed = |reason| MountError::Call {
        step: "connecting to the mount server",
        reason,
    };
    if let Some(port) = ports.mount {
        return Client::connect(at(port), options).await.map_err(failed);
    }
    if let Some(port) = ports.nfs {
        // Small servers serve mount at the same port; ask.
        let client = Client::connect(at(port), options).await.map_err(failed)?;
        match client
            .call::<Void>(
                rpc::MOUNT,
                MOUNT_PROGRAM::MOUNTPROC3_NULL as u32,
                "mount null",
                &Void,
            )
            .await
        {
            Ok(_) => return Ok(client),
            Err(CallError::Refused {
                refusal: Refusal::ProgramUnavailable | Refusal::ProgramMismatch { .. },
                ..
            }) => {}
            Err(reason) => return Err(failed(reason)),
        }
    }
    let port = ask_port_mapper(at(PMAP_PORT), rpc::MOUNT, "mount version 3", options).await?;
    Client::connect(at(port), options).await.map_err(failed)
}

async fn ask_port_mapper(
    peer: SocketAddr,
    program: Program,
    name: &'static str,
    options: &Options,
) -> Result<u16, MountError> {
    let failed = |reason| MountError::Call {
        step: "asking the port mapper (give --nfs-port and --mount-port to do without)",
        reason,
    };
    let client = Client::connect(peer, options).await.map_err(failed)?;
    let protocol = match options.transport {
        Transport::Tcp => IPPROTO_TCP,
        Transport::Udp => IPPROTO_UDP,
    };
    let wanted = mapping {
        prog: program.number,
        vers: program.version,
        prot: protocol,
        port: 0,
    };
    let reply = client
        .call::<u32>(
            rpc::PORTMAP,
            PMAP_PROG::PMAPPROC_GETPORT as u32,
            "getport",
            &wanted,
        )
        .await
        .map_err(failed)?;
    u16::try_from(reply.result)
        .ok()
        .filter(|port| *port != 0)
        .ok_or(MountError::NotRegistered {
            peer,
            name,
            transport: options.transport,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_written_as_for_mount() {
        for (text, host, path) in [
            ("filer:/export", "filer", "/export"),
            ("192.0.2.7:/", "192.0.2.7", "/"),
            ("[2001:db8::7]:/a/b", "2001:db8::7", "/a/b"),
        ] {
            let export: Export = text.parse().unwrap();
            assert_eq!((export.host.as_str(), export.path.as_str()), (host, path));
            assert_eq!(export.to_string(), text);
        }
        for text in ["filer", ":/export", "filer:export", "[::1]/export", ""] {
            assert!(
                matches!(text.parse::<Export>(), Err(MountError::Syntax(_))),
                "{text}"
            );
        }
    }
}
