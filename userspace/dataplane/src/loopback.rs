//! What the loopback device needs to receive IPv4 packets that have been held.
//!
//! A packet over lo brings the route of its sender along (`skb_dst`), and is not routed again when it is received. The way
//! through a hold device takes it away (`skb_scrub_packet`), so that `ip_route_input_slow` looks at the addresses as if
//! they had come from outside: it refuses 127.0.0.0/8 unless `route_localnet` is set, and `fib_validate_source` refuses
//! the host's own addresses as a source unless `accept_local` is set. Both are set for the life of an emulation, of lo
//! alone. That is safe: no wire leads to lo, and all that it receives this host has sent. Other interfaces go on
//! refusing such addresses, as their own settings and those of `all` stay as they are.
//!
//! `rp_filter` needs no change: a local source is taken to be reachable over lo (`__fib_validate_source`, 5.3). IPv6 asks
//! for nothing: its check looks at the device's flag (`ip6_rcv_core`).

use std::{fs, io};

use serde::{Deserialize, Serialize};

/// Of lo, relative to `/proc/sys`, which shows the calling thread's network namespace.
const NEEDED: [&str; 2] = ["net/ipv4/conf/lo/route_localnet", "net/ipv4/conf/lo/accept_local"];
const ON: &str = "1";

/// A setting of lo that an emulation changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Relative to `/proc/sys`.
    key: String,
    /// Its value before.
    before: String,
}

/// A setting could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{action} /proc/sys/{key}: {source}")]
pub struct SettingError {
    action: &'static str,
    key: String,
    source: io::Error,
}

fn file<T>(action: &'static str, key: &str, result: io::Result<T>) -> Result<T, SettingError> {
    result.map_err(|source| SettingError {
        action,
        key: key.into(),
        source,
    })
}

fn value(key: &str) -> Result<String, SettingError> {
    let text = file("reading", key, fs::read_to_string(format!("/proc/sys/{key}")))?;
    Ok(text.trim().into())
}

fn set(key: &str, value: &str) -> Result<(), SettingError> {
    file("writing", key, fs::write(format!("/proc/sys/{key}"), value))
}

/// What has to be changed in the calling thread's namespace: nothing that is on already.
pub fn needed() -> Result<Vec<Setting>, SettingError> {
    let mut settings = Vec::new();
    for key in NEEDED {
        let before = value(key)?;
        if before != ON {
            settings.push(Setting {
                key: key.into(),
                before,
            });
        }
    }
    Ok(settings)
}

/// Puts settings back, unless somebody has changed them since. Each is tried; the first failure is told.
pub fn restore(settings: &[Setting]) -> Result<(), SettingError> {
    let put_back = |Setting { key, before }: &Setting| match value(key)?.as_str() {
        ON => set(key, before),
        _ => Ok(()),
    };
    let tried: Vec<_> = settings.iter().map(put_back).collect();
    tried.into_iter().collect()
}

/// The settings, changed; dropping it in the same namespace puts them back. Whoever records them does so before.
#[derive(Debug)]
pub struct Relaxed(Vec<Setting>);

impl Relaxed {
    /// Changes what has to be changed in the calling thread's namespace.
    pub fn new() -> Result<Self, SettingError> {
        let relaxed = Self(needed()?);
        for Setting { key, .. } in &relaxed.0 {
            set(key, ON)?;
        }
        Ok(relaxed)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Err(error) = restore(&self.0) {
            log::warn!("{error}; set it back with `sysctl`");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Setting, restore};

    /// One that is gone, as with a kernel that was replaced, keeps none of the others raised.
    #[test]
    fn each_setting_is_tried() -> Result<(), Box<dyn std::error::Error>> {
        let place = tempfile::tempdir()?;
        let setting = |name: &str| Setting {
            key: format!("../..{}", place.path().join(name).display()),
            before: "0".into(),
        };
        for (name, value) in [("raised", "1\n"), ("changed", "2\n")] {
            fs::write(place.path().join(name), value)?;
        }
        let told = restore(&[setting("gone"), setting("raised"), setting("changed")]);
        assert!(told.is_err_and(|error| error.to_string().contains("gone")));
        assert_eq!(fs::read_to_string(place.path().join("raised"))?, "0");
        assert_eq!(fs::read_to_string(place.path().join("changed"))?, "2\n");
        Ok(())
    }
}
