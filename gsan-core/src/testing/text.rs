//! Programs written as text.
//!
//! A thread is one line: `CTA.THREAD: INSTRUCTION; INSTRUCTION; ...`, with the name of the kernel
//! before it if the host launches several. Instructions look like PTX:
//!
//! | instruction | |
//! | --- | --- |
//! | `ld x`, `ld.acquire.gpu x == 1`, `ld.volatile x` | with `== V` the thread returns unless it loaded `V` |
//! | `st x 1`, `st.release.sys x 1` | |
//! | `atom.acq_rel.gpu.add x 1`, `red.relaxed.gpu.add x 1` | `== V` as above, for the old value |
//! | `atom.acquire.gpu.cas x 0 1`, `... swapped` | with `swapped` the thread returns unless it swapped |
//! | `fence.sc.gpu`, `fence.acq_rel.cta`, `fence.acquire.sys`, `fence.release.gpu`, `fence.proxy.async` | |
//! | `bar.sync 0`, `bar.arrive 0`, `bar.warp.sync 3` | all threads of the CTA that have code take part |
//! | `cluster.arrive`, `cluster.wait` | `.relaxed` too |
//! | `mbar.arrive m/2`, `mbar.wait m/2` | two arrivals complete a phase; `.relaxed` too; `m@1` lies in CTA 1 |
//! | `cp.async 1 TO FROM`, `cp.bulk 1 TO FROM` | copy number 1 of this thread |
//! | `wait 1`, `wait.read 1`, `complete 1 m/2` | the copy is done; has read; is done and arrives at an mbarrier |
//! | `griddep.wait` | |
//!
//! A place is a name: 4 bytes of global memory (`x`), of the CTA's shared memory (`s.x`) or of
//! that of CTA 1 (`s1.x`); `x:2+6` are 2 bytes of it, from byte 6. Names are 16 bytes apart.
//!
//! The host is one line too: `launch a stream 0 device 0 dependent`, `record 0 stream 0`,
//! `wait 0 stream 1`, `sync stream 0`, `sync event 0`, `sync device 0`, separated by `;`.

use std::collections::BTreeMap;

use super::program::{At, Code, HostOp, Kernel, Memory, Op, OpKind, Place, Program, Verb};
use crate::event::{Completion, FenceKind, HostEvent, Launch, Proxy};
use crate::ids::{DeviceRank, LaunchId, SiteId, StreamId};
use crate::scope::{Order, Scope};

type Result<T> = std::result::Result<T, String>;

/// The site of an instruction: both numbers count from 0.
pub fn site(thread: usize, instruction: usize) -> SiteId {
    SiteId((thread * INSTRUCTIONS + instruction + 1) as u32)
}

/// Says the site back as `THREAD.INSTRUCTION`.
pub fn site_name(site: SiteId) -> String {
    let number = (site.0 as usize).wrapping_sub(1);
    format!("{}.{}", number / INSTRUCTIONS, number % INSTRUCTIONS)
}

/// More than any thread of a test has.
const INSTRUCTIONS: usize = 64;

/// Reads a program. An empty `host` launches the only kernel.
///
/// # Errors
/// Says what is wrong with which instruction.
pub fn program(host: &str, cluster: u32, threads: &[String]) -> Result<Program> {
    let mut names = Names::default();
    let mut heads = Vec::new();
    for line in threads {
        let (head, body) = line
            .split_once(':')
            .ok_or_else(|| format!("`{line}` names no thread"))?;
        let (kernel, position) = head.rsplit_once(' ').unwrap_or(("", head));
        let (cta, index) = position
            .split_once('.')
            .ok_or_else(|| format!("`{position}` is not CTA.THREAD"))?;
        heads.push((kernel.trim(), number(cta)?, number(index)?, body));
    }
    let default = format!("launch {}", heads.first().map_or("", |head| head.0));
    let host = if host.is_empty() { &default } else { host };
    let mut program = Program::default();
    for step in host.split(';') {
        let words: Vec<&str> = step.split_whitespace().collect();
        let op = match words.first() {
            Some(&"launch") => {
                let name = words.get(1).copied().unwrap_or("");
                let of_kernel = |of: &&(&str, u32, u32, &str)| of.0 == name;
                let kernel_heads = || heads.iter().filter(of_kernel);
                let ctas = kernel_heads().map(|h| h.1 + 1).max().unwrap_or(1);
                let launch = Launch {
                    id: LaunchId(program.kernels.len() as u32),
                    device: DeviceRank(option(&words, "device")?.unwrap_or(0) as u16),
                    stream: StreamId(option(&words, "stream")?.unwrap_or(0)),
                    ctas: ctas.next_multiple_of(cluster),
                    threads: kernel_heads().map(|h| h.2 + 1).max().unwrap_or(1),
                    cluster,
                    programmatic: words.contains(&"dependent"),
                };
                let mut codes = Vec::new();
                for (number, &(kernel, cta, index, body)) in heads.iter().enumerate() {
                    if kernel != name {
                        continue;
                    }
                    let mates = |same: &dyn Fn(u32) -> bool| {
                        kernel_heads().filter(|head| same(head.1)).count() as u32
                    };
                    let context = Context {
                        cta,
                        in_cta: mates(&|other| other == cta),
                        in_cluster: mates(&|other| other / cluster == cta / cluster),
                    };
                    let mut ops = Vec::new();
                    let instructions = body.split(';').map(str::trim);
                    for (at, text) in instructions.filter(|text| !text.is_empty()).enumerate() {
                        let kinds = instruction(text, &context, &mut names)
                            .map_err(|why| format!("`{text}`: {why}"))?;
                        let site = site(number, at);
                        ops.extend(kinds.into_iter().map(|kind| Op { site, kind }));
                    }
                    codes.push(Code { cta, index, ops });
                }
                program.kernels.push(Kernel {
                    launch,
                    threads: codes,
                });
                HostOp::Launch(program.kernels.len() - 1)
            }
            Some(&"record") => HostOp::Host(HostEvent::Record {
                event: argument(&words, 1)?,
                stream: StreamId(option(&words, "stream")?.unwrap_or(0)),
            }),
            Some(&"wait") => HostOp::Host(HostEvent::Wait {
                event: argument(&words, 1)?,
                stream: StreamId(option(&words, "stream")?.unwrap_or(0)),
            }),
            Some(&"sync") => HostOp::Host(match words.get(1) {
                Some(&"stream") => HostEvent::SyncStream(StreamId(argument(&words, 2)?)),
                Some(&"event") => HostEvent::SyncEvent(argument(&words, 2)?),
                Some(&"device") => HostEvent::SyncDevice(DeviceRank(argument(&words, 2)? as u16)),
                _ => return Err(format!("`{step}` waits for nothing known")),
            }),
            _ => return Err(format!("`{step}` is nothing a host does")),
        };
        program.host.push(op);
    }
    Ok(program)
}

/// What an instruction depends on beside its text.
struct Context {
    cta: u32,
    in_cta: u32,
    in_cluster: u32,
}

#[derive(Default)]
struct Names(BTreeMap<String, u64>);

impl Names {
    fn address(&mut self, name: &str) -> u64 {
        const FIRST: u64 = 0x1000;
        let next = FIRST + 16 * self.0.len() as u64;
        *self.0.entry(name.to_owned()).or_insert(next)
    }

    fn place(&mut self, text: &str) -> Result<Place> {
        let (name, range) = text.split_once(':').unwrap_or((text, "4"));
        let (bytes, offset) = range.split_once('+').unwrap_or((range, "0"));
        let (memory, name) = match name.split_once('.') {
            None => (Memory::Global, name),
            Some(("s", name)) => (Memory::OwnShared, name),
            Some((memory, name)) => {
                let cta = memory.strip_prefix('s');
                let cta = cta.ok_or_else(|| format!("`{memory}` is no memory"))?;
                (Memory::SharedOf(number(cta)?), name)
            }
        };
        Ok(Place {
            memory,
            address: self.address(name) + u64::from(number(offset)?),
            bytes: number(bytes)?,
        })
    }

    fn mbarrier(&mut self, text: &str, context: &Context) -> Result<At> {
        let (object, count) = text.split_once('/').unwrap_or((text, "1"));
        let (name, owner) = match object.split_once('@') {
            Some((name, owner)) => (name, number(owner)?),
            None => (object, context.cta),
        };
        Ok(At::Mbarrier {
            owner,
            offset: self.address(name),
            count: number(count)?,
        })
    }
}

fn number(text: &str) -> Result<u32> {
    let text = text.trim();
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn argument(words: &[&str], at: usize) -> Result<u32> {
    let word = words.get(at);
    number(word.ok_or_else(|| format!("`{}` needs a number", words.join(" ")))?)
}

fn option(words: &[&str], name: &str) -> Result<Option<u32>> {
    match words.iter().position(|word| *word == name) {
        Some(at) => argument(words, at + 1).map(Some),
        None => Ok(None),
    }
}

fn instruction(text: &str, context: &Context, names: &mut Names) -> Result<Vec<OpKind>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mnemonic: Vec<&str> = words[0].split('.').collect();
    let word = |at: usize| {
        let word = words.get(at).copied();
        word.ok_or_else(|| format!("operand {at} is missing"))
    };
    let relaxed = mnemonic.contains(&"relaxed");
    let one = |kind| Ok(vec![kind]);
    match mnemonic[..] {
        ["ld" | "st" | "atom" | "red", ..] => {
            one(access(&mnemonic, &words, names.place(word(1)?)?)?)
        }
        ["fence", "proxy", "async"] => one(OpKind::Fence {
            kind: FenceKind::ProxyAsync,
            scope: Scope::Cta,
        }),
        ["fence", kind, at] => one(OpKind::Fence {
            kind: match kind {
                "sc" => FenceKind::Sc,
                "acq_rel" => FenceKind::AcqRel,
                "acquire" => FenceKind::Acquire,
                "release" => FenceKind::Release,
                _ => return Err(format!("`{kind}` is no kind of fence")),
            },
            scope: scope(at).ok_or_else(|| format!("`{at}` is no scope"))?,
        }),
        ["bar", what @ ("sync" | "arrive")] => {
            let (id, count) = word(1)?.split_once('/').unzip();
            let at = At::CtaBarrier {
                id: number(id.unwrap_or(word(1)?))?,
                count: count.map_or(Ok(context.in_cta), number)?,
            };
            Ok(meet(at, what == "sync"))
        }
        ["bar", "warp", "sync"] => {
            let mask = number(word(1)?)?;
            Ok(meet(At::WarpBarrier { mask }, true))
        }
        ["cluster", what, ..] | ["mbar", what, ..] => {
            let at = if mnemonic[0] == "mbar" {
                names.mbarrier(word(1)?, context)?
            } else {
                At::ClusterBarrier {
                    count: context.in_cluster,
                }
            };
            one(match what {
                "arrive" => OpKind::Arrive {
                    at,
                    releases: !relaxed,
                },
                "wait" => OpKind::Leave {
                    at,
                    acquires: !relaxed,
                },
                _ => return Err(format!("`{what}` is nothing a barrier does")),
            })
        }
        ["cp", kind] => one(OpKind::Issue {
            copy: number(word(1)?)?,
            to: names.place(word(2)?)?,
            from: names.place(word(3)?)?,
            proxy: match kind {
                "async" => Proxy::Generic,
                "bulk" => Proxy::Async,
                _ => return Err(format!("`{kind}` is no kind of copy")),
            },
        }),
        ["wait"] | ["wait", "read"] => one(OpKind::Wait {
            copy: number(word(1)?)?,
            completion: match mnemonic.len() {
                1 => Completion::Full,
                _ => Completion::ReadsOnly,
            },
        }),
        ["complete"] => one(OpKind::Complete {
            copy: number(word(1)?)?,
            at: names.mbarrier(word(2)?, context)?,
        }),
        ["griddep", "wait"] => one(OpKind::GridDependencyWait),
        _ => Err("no such instruction".to_owned()),
    }
}

fn meet(at: At, leaves: bool) -> Vec<OpKind> {
    let mut kinds = vec![OpKind::Arrive { at, releases: true }];
    if leaves {
        kinds.push(OpKind::Leave { at, acquires: true });
    }
    kinds
}

fn scope(text: &str) -> Option<Scope> {
    Some(match text {
        "cta" => Scope::Cta,
        "cluster" => Scope::Cluster,
        "gpu" => Scope::Gpu,
        "sys" => Scope::Sys,
        _ => return None,
    })
}

fn access(mnemonic: &[&str], words: &[&str], place: Place) -> Result<OpKind> {
    let (mut order, mut reach, mut swap) = (Order::Weak, None, false);
    for part in &mnemonic[1..] {
        match *part {
            "relaxed" => order = Order::Relaxed,
            "acquire" => order = Order::Acquire,
            "release" => order = Order::Release,
            "acq_rel" => order = Order::AcqRel,
            "volatile" => (order, reach) = (Order::Relaxed, Some(Scope::Sys)),
            "cas" => swap = true,
            "weak" | "add" => {}
            part => reach = Some(scope(part).ok_or_else(|| format!("`.{part}` is unknown"))?),
        }
    }
    if order.is_strong() != reach.is_some() {
        return Err("a strong access has a scope, a weak one has none".to_owned());
    }
    let expect = option(words, "==")?.map(u64::from);
    let verb = match mnemonic[0] {
        "ld" => Verb::Load { expect },
        "st" => Verb::Store(argument(words, 2)?.into()),
        "red" => Verb::Reduce(argument(words, 2)?.into()),
        _ if swap => Verb::Swap {
            compare: argument(words, 2)?.into(),
            value: argument(words, 3)?.into(),
            must_swap: words.contains(&"swapped"),
        },
        _ => Verb::Add {
            value: argument(words, 2)?.into(),
            expect,
        },
    };
    Ok(OpKind::Access {
        verb,
        order,
        scope: reach.unwrap_or(Scope::Cta),
        place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        program("", 1, &[line.to_owned()]).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(refused("ld x"), "`ld x` names no thread");
        assert_eq!(refused("0: ld x"), "`0` is not CTA.THREAD");
        assert_eq!(refused("0.0: mov x"), "`mov x`: no such instruction");
        assert_eq!(refused("0.0: st x"), "`st x`: `st x` needs a number");
        assert_eq!(
            refused("0.0: ld.acquire x"),
            "`ld.acquire x`: a strong access has a scope, a weak one has none"
        );
        assert_eq!(
            refused("0.0: fence.sc.world"),
            "`fence.sc.world`: `world` is no scope"
        );
    }

    #[test]
    fn places_are_parts_of_names() {
        let mut names = Names::default();
        names.place("x").unwrap();
        assert_eq!(
            names.place("s1.y:2+6").unwrap(),
            Place {
                memory: Memory::SharedOf(1),
                address: 0x1010 + 6,
                bytes: 2
            }
        );
    }
}
