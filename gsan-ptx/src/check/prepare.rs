//! A module and its arguments, brought together: everything that is the same for all schedules.

use std::collections::HashMap;
use std::path::Path;

use gsan_core::ids::{DeviceRank, LaunchId, StreamId};
use gsan_report::model;
use gsan_report::names::{self, Names};

use super::argument::Argument;
use super::spec::{Launch, Spec};
use super::{Error, Problem, target};
use crate::diagnostic::{Source, nearest};
use crate::exec::launch::Launch as Ready;
use crate::exec::memory::Image;
use crate::exec::{Limits, Setup};
use crate::lower::{entries, lower};
use crate::program::Program;
use crate::program::symbols::{Function, FunctionId, Param, Place};
use crate::syntax::ast::{self, Module};
use crate::syntax::parse;

/// What is run under every schedule.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The decoded program.
    pub program: Program,
    /// The contents of the buffers.
    pub image: Image,
    /// The launches.
    pub launches: Vec<Ready>,
    /// The addresses of the buffers, in the order of the specification.
    pub buffers: Vec<u64>,
    /// What reports call everything.
    pub names: Names,
    /// What was assumed and should be said.
    pub notes: Vec<String>,
    /// Bytes of all buffers together.
    pub buffer_bytes: u64,
}

/// Reads a PTX file and brings it together with its arguments. Files named in `spec`, and source
/// files, are relative to `base`.
///
/// # Errors
/// The PTX is wrong or not supported, or the arguments do not fit it.
pub fn prepare(source: Source<'_>, spec: &Spec, base: &Path) -> Result<Prepared, Error> {
    let module = parse(&source).map_err(Error::Ptx)?;
    target::check(&source, &module)?;
    let mut chosen = Vec::new();
    for launch in &spec.launches {
        chosen.push(choose(&module, launch)?);
    }
    let program = lower(source, &module, &chosen).map_err(Error::Ptx)?;
    let mut prepared = Prepared {
        program,
        image: Image::default(),
        launches: Vec::new(),
        buffers: Vec::new(),
        names: Names::default(),
        notes: Vec::new(),
        buffer_bytes: 0,
    };
    prepared.allocate(spec, base)?;
    prepared.name_sites(source.file, base);
    let mut host = Host::default();
    for (number, (launch, entry)) in spec.launches.iter().zip(chosen).enumerate() {
        prepared.launch(number, launch, entry, spec, &module, &mut host)?;
    }
    // Checks what does not depend on the arguments' meaning.
    Setup::new(
        &prepared.program,
        &prepared.image,
        &prepared.launches,
        Limits::default(),
    )
    .map_err(|error| Problem::new(error.to_string()))?;
    count_threads(&prepared.launches)?;
    Ok(prepared)
}

/// The kernel of a launch.
fn choose<'m>(module: &'m Module, launch: &Launch) -> Result<&'m ast::Function, Problem> {
    let names: Vec<&str> = entries(module).map(|entry| entry.name.as_str()).collect();
    let mut found = entries(module);
    match &launch.entry {
        Some(name) => entries(module)
            .find(|entry| entry.name.value == *name)
            .ok_or_else(|| {
                let help = nearest(name, names.iter().copied()).map_or_else(
                    || format!("the kernels are {}", names.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                Problem::new(format!("the module has no kernel `{name}`")).help(help)
            }),
        None => match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(Problem::new("the module has no kernel (`.entry`)")),
            (Some(_), Some(_)) => Err(Problem::new(format!(
                "the module has {} kernels",
                names.len()
            ))
            .help(format!("choose one with --entry: {}", names.join(", ")))),
        },
    }
}

/// Numbers of streams and events.
#[derive(Default)]
struct Host {
    streams: HashMap<(u16, u32), StreamId>,
    events: HashMap<String, u32>,
}

impl Host {
    fn stream(&mut self, device: u16, stream: u32) -> StreamId {
        let next = StreamId(self.streams.len() as u32);
        *self.streams.entry((device, stream)).or_insert(next)
    }

    fn event(&mut self, name: &str) -> u32 {
        let next = self.events.len() as u32;
        *self.events.entry(name.to_owned()).or_insert(next)
    }
}

/// The most threads that all launches have together: the detector numbers them with 32 bits and
/// needs the last number itself.
const MAX_THREADS: u64 = u32::MAX as u64 - 1;

/// Refuses launches that the detector cannot tell the threads of apart.
fn count_threads(launches: &[Ready]) -> Result<(), Problem> {
    let threads = launches.iter().fold(0u64, |sum, launch| {
        sum.saturating_add(u64::from(launch.ctas()) * u64::from(launch.threads()))
    });
    if threads <= MAX_THREADS {
        return Ok(());
    }
    let launched = match launches {
        [one] => format!(
            "a grid of {} CTAs of {} threads has",
            one.ctas(),
            one.threads()
        ),
        _ => format!("{} launches have", launches.len()),
    };
    Err(Problem::new(format!(
        "{launched} {threads} threads; at most {MAX_THREADS} can be told apart"
    ))
    .help("a smaller grid of the same kernel shows the same races"))
}

impl Prepared {
    /// The run under one schedule.
    ///
    /// # Errors
    /// Never for launches that [`prepare`] accepted.
    pub fn setup(&self, limits: Limits) -> Result<Setup<'_>, Problem> {
        Setup::new(&self.program, &self.image, &self.launches, limits)
            .map_err(|error| Problem::new(error.to_string()))
    }

    fn allocate(&mut self, spec: &Spec, base: &Path) -> Result<(), Problem> {
        for (number, buffer) in spec.buffers.iter().enumerate() {
            let about = |problem: Problem| Problem {
                message: format!("buffer `{}`: {}", buffer.name, problem.message),
                ..problem
            };
            let contents = &buffer.contents;
            let address = self
                .image
                .allocate(contents.bytes)
                .map_err(|error| about(Problem::new(error.to_string())))?;
            let init = contents
                .init
                .contents(contents.ty, contents.bytes, number, base)
                .map_err(about)?;
            self.image.write(address, &init);
            let name = Some(buffer.name.clone());
            self.names.add_allocation(address, contents.bytes, name);
            self.buffers.push(address);
            self.buffer_bytes = self.buffer_bytes.saturating_add(contents.bytes);
        }
        Ok(())
    }

    fn name_sites(&mut self, file: &str, base: &Path) {
        let files: Vec<String> = (self.program.files.iter())
            .map(|name| locate(name, base))
            .collect();
        for (instruction, place) in self.program.places.iter().enumerate() {
            let site = self.program.site(instruction as u32);
            self.names.add_site(site, named(place, file, &files));
        }
    }

    fn launch(
        &mut self,
        number: usize,
        launch: &Launch,
        entry: &ast::Function,
        spec: &Spec,
        module: &Module,
        host: &mut Host,
    ) -> Result<(), Problem> {
        let name = entry.name.as_str();
        let about = |problem: Problem| Problem {
            message: match spec.launches.len() {
                1 => format!("kernel `{name}`: {}", problem.message),
                _ => format!("launch {number} of kernel `{name}`: {}", problem.message),
            },
            ..problem
        };
        let functions = &self.program.functions;
        let Some(id) = functions.iter().position(|f| f.entry && f.name == name) else {
            return Err(about(Problem::new("it was not decoded")));
        };
        let function = functions[id].clone();
        if launch.cluster != [1; 3] || function.cluster.is_some_and(|cluster| cluster != [1; 3]) {
            return Err(about(Problem::new("clusters are not supported yet").help(
                "only kernels without clusters, or with clusters of one CTA, can be run",
            )));
        }
        let Some(block) = launch.block.or(function.reqntid) else {
            return Err(about(
                Problem::new("the size of a block is not known")
                    .help("give it with --block; the kernel has no .reqntid"),
            ));
        };
        let params = self.parameters(launch, &function, spec).map_err(about)?;
        let most =
            target::shared_bytes(module).saturating_sub(self.program.dynamic_shared_offset());
        let dynamic_shared = match spec.shared {
            Some(bytes) => bytes,
            None if function.dynamic_shared => most,
            None => 0,
        };
        let stream = host.stream(launch.device, launch.stream);
        self.launches.push(Ready {
            entry: FunctionId(id as u32),
            grid: launch.grid,
            block,
            dynamic_shared,
            params,
            device: DeviceRank(launch.device),
            stream,
            programmatic: launch.programmatic,
            waits: launch.waits.iter().map(|name| host.event(name)).collect(),
            record: launch.record.as_deref().map(|name| host.event(name)),
            sync: launch.sync,
        });
        self.names.add_launch(
            LaunchId(number as u32),
            names::Launch {
                kernel: name.to_owned(),
                number: number as u64,
                device: DeviceRank(launch.device),
                stream: u64::from(launch.stream),
                grid: launch.grid,
                block,
                opaque: None,
            },
        );
        Ok(())
    }

    /// The bytes of the parameter space.
    fn parameters(
        &mut self,
        launch: &Launch,
        function: &Function,
        spec: &Spec,
    ) -> Result<Vec<u8>, Problem> {
        let given = launch.arguments.len();
        let takes = function.params.len();
        if given > takes {
            return Err(
                Problem::new(wrong_number(given, takes)).help_if(signature(&function.params))
            );
        }
        let mut bytes = vec![0; function.param_bytes as usize];
        for (index, param) in function.params.iter().enumerate() {
            let Some(argument) = launch.arguments.get(index) else {
                if !param.pointer {
                    let problem = Problem::new(wrong_number(given, takes));
                    let all_but = "; only what is marked as a pointer may be left out, at the end";
                    return Err(
                        problem.help_if(signature(&function.params).map(|takes| takes + all_but))
                    );
                }
                if param.used {
                    self.notes.push(format!(
                        "pointer `{}` of kernel `{}` is not given and is null",
                        param.name, function.name
                    ));
                }
                continue;
            };
            let (value, what) = match argument {
                Argument::Buffer { buffer, offset } => {
                    let address = self.buffers[*buffer].wrapping_add(*offset);
                    let what = format!("the address of `{}`", spec.buffers[*buffer].name);
                    (address.to_le_bytes().to_vec(), what)
                }
                Argument::Scalar { ty, bytes } => {
                    (bytes.clone(), format!("a number of type `{}`", ty.word()))
                }
                Argument::Bytes(bytes) => (bytes.clone(), "a structure".to_owned()),
            };
            if value.len() != param.bytes as usize {
                return Err(Problem::new(format!(
                    "argument {index} is {what} of {} bytes; parameter `{}` has {}",
                    value.len(),
                    param.name,
                    param.bytes
                )));
            }
            let offset = param.offset as usize;
            bytes[offset..offset + value.len()].copy_from_slice(&value);
        }
        Ok(bytes)
    }
}

fn wrong_number(given: usize, takes: usize) -> String {
    let given = match given {
        1 => "1 argument is given".to_owned(),
        _ => format!("{given} arguments are given"),
    };
    let plural = if takes == 1 { "" } else { "s" };
    format!("{given}, it has {takes} parameter{plural}")
}

/// What a kernel takes, for someone who writes its arguments.
fn signature(params: &[Param]) -> Option<String> {
    /// More would hide the problem.
    const MOST: usize = 16;
    if params.is_empty() {
        return None;
    }
    let mut shown: Vec<String> = params
        .iter()
        .take(MOST)
        .map(|param| match param.pointer {
            true => format!("`{}` (a pointer)", param.name),
            false => format!("`{}` ({} bytes)", param.name, param.bytes),
        })
        .collect();
    if params.len() > MOST {
        shown.push(format!("{} more", params.len() - MOST));
    }
    Some(format!("it takes {}", shown.join(", ")))
}

/// Where a source file lies now. Compilers note paths of their own machine, or relative ones: a
/// file of that name beside the PTX is taken for it.
fn locate(name: &str, base: &Path) -> String {
    let path = Path::new(name);
    if path.is_file() {
        return name.to_owned();
    }
    let beside = [
        Some(base.join(path)),
        path.file_name().map(|file| base.join(file)),
    ];
    beside
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

/// The place of an instruction in words of a report.
fn named(place: &Place, ptx: &str, files: &[String]) -> model::Place {
    let source = place
        .file
        .and_then(|file| files.get(file as usize))
        .filter(|_| place.line > 0);
    match source {
        Some(file) => model::Place {
            file: file.clone(),
            line: place.line,
            column: Some(place.column).filter(|column| *column > 0),
            ptx: Some(model::PtxLine {
                file: ptx.to_owned(),
                line: place.ptx_line,
            }),
        },
        None => model::Place {
            file: ptx.to_owned(),
            line: place.ptx_line,
            column: None,
            ptx: None,
        },
    }
}
