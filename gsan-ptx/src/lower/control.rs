//! Branches, calls, barriers and fences.

use super::body::{Frame, Slot};
use super::decode::Decoder;
use super::scope::Meaning;
use super::types::DataType;
use super::{IndirectCall, Lowerer, Result};
use crate::diagnostic::{Diagnostic, nearest};
use crate::program::ir::{
    BarrierKind, BarrierReduction, Builtin, Call, Callee, Collective, Op, Storage, Transfer,
};
use crate::program::operand::{Operand, SymbolSpace};
use crate::program::symbols::FunctionId;
use crate::syntax::ast::{Operand as Written, Statement, Symbol};
use crate::syntax::span::{Span, Spanned};
use crate::syntax::types::StateSpace;
use gsan_core::event::FenceKind;
use gsan_core::scope::Scope;

/// What `gsan check` provides of the functions that CUDA declares: the name, and the sizes of
/// result and arguments in bytes.
const BUILTINS: &[(&str, Builtin, &[u32], &[u32])] = &[
    ("vprintf", Builtin::Vprintf, &[4], &[8, 8]),
    ("__assertfail", Builtin::AssertFail, &[], &[8, 8, 4, 8, 8]),
];

impl<'a> Decoder<'_, '_, 'a> {
    /// An operand that is only a name.
    fn name(&self, index: usize, what: &str) -> Result<(&'a str, Span)> {
        let operand = self.operand(index)?;
        match &operand.value {
            Written::Symbol(Symbol {
                name,
                component: None,
            }) => Ok((name, operand.span)),
            _ => Err(self.error(
                operand.span,
                format!("`{}` takes {what} here", self.opcode()),
            )),
        }
    }

    fn label(&self, name: &str, span: Span) -> Result<u32> {
        match self.body.label(name) {
            Some(label) => Ok(label as u32),
            None => {
                let help = nearest(name, self.body.scope.labels())
                    .map(|near| format!("did you mean `{near}`?"));
                Err(self
                    .error(span, format!("there is no label `{name}` here"))
                    .with_help_if(help))
            }
        }
    }

    pub(super) fn branch(&mut self) -> Result<Op> {
        self.count(1, 1)?;
        self.flag("uni");
        let (name, span) = self.name(0, "a label")?;
        Ok(Op::Branch {
            target: self.label(name, span)?,
        })
    }

    pub(super) fn branch_table(&mut self) -> Result<Op> {
        self.demand("idx")?;
        self.flag("uni");
        self.count(2, 2)?;
        let index = self.src(0, DataType::U32)?;
        let (name, span) = self.name(1, "the name of a `.branchtargets` list")?;
        let Some((Meaning::List(Statement::BranchTargets { targets, .. }), _)) =
            self.body.scope.find(name)
        else {
            return Err(self.error(span, format!("`{name}` is not a `.branchtargets` list")));
        };
        let labels = targets
            .iter()
            .map(|target| self.label(target, target.span))
            .collect::<Result<Vec<u32>>>()?;
        let tables = &mut self.body.lowerer.program.tables;
        tables.push(labels);
        let table = tables.len() as u32 - 1;
        Ok(Op::BranchTable { index, table })
    }

    pub(super) fn call(&mut self) -> Result<Op> {
        self.flag("uni");
        let mut operands = self.instruction.value.operands.iter().peekable();
        let mut group = || match operands.peek() {
            Some(Spanned {
                value: Written::Group(group),
                ..
            }) => {
                operands.next();
                Some((group.as_slice(), operands.next()))
            }
            _ => None,
        };
        let (results, callee): (&[_], _) = match group() {
            Some((results, callee)) => (results, callee),
            None => (&[], operands.next()),
        };
        let arguments: &[_] = match operands.peek() {
            Some(Spanned {
                value: Written::Group(arguments),
                ..
            }) => {
                operands.next();
                arguments
            }
            _ => &[],
        };
        let list = operands.next();
        let Some(Spanned {
            value: Written::Symbol(symbol),
            span,
        }) = callee
        else {
            return Err(self.opcode_error("`call` names no function"));
        };
        let (callee, frame) = match self.body.scope.find(&symbol.name) {
            Some((Meaning::Register(_), _)) => self.indirect(symbol, *span, list)?,
            _ => self.direct(symbol, *span)?,
        };
        let arguments = self.transfers(arguments, &frame.parameters, "argument", *span)?;
        let results = self.transfers(results, &frame.returns, "result", *span)?;
        let to_callee = |(caller, slot): (Storage, Slot)| Transfer {
            from: caller,
            to: slot.storage,
            bytes: slot.bytes,
        };
        let to_caller = |(caller, slot): (Storage, Slot)| Transfer {
            from: slot.storage,
            to: caller,
            bytes: slot.bytes,
        };
        let indirect = matches!(callee, Callee::Indirect { .. });
        let lowerer = &mut self.body.lowerer;
        lowerer.program.calls.push(Call {
            callee,
            arguments: arguments.into_iter().map(to_callee).collect(),
            results: results.into_iter().map(to_caller).collect(),
        });
        let call = lowerer.program.calls.len() - 1;
        if indirect {
            lowerer.indirect.push(IndirectCall { call, frame });
        }
        Ok(Op::Call(call as u32))
    }

    /// A function is declared, and its code is elsewhere.
    pub(super) fn not_defined(&self, name: &str, span: Span) -> Box<Diagnostic> {
        let provided: Vec<String> = (BUILTINS.iter())
            .map(|(name, ..)| format!("`{name}`"))
            .collect();
        self.error(
            span,
            format!("`{name}` is declared but not defined in this module"),
        )
        .with_help(format!(
            "`gsan check` runs one module and provides {} only",
            provided.join(" and ")
        ))
    }

    fn direct(&mut self, symbol: &Symbol, span: Span) -> Result<(Callee, Frame)> {
        let name = symbol.name.as_str();
        let lowerer = &mut self.body.lowerer;
        if let Some(id) = lowerer.function_id(name) {
            let function = lowerer.functions[name];
            if function.entry {
                return Err(lowerer.error(span, format!("`{name}` is a kernel: it is not called")));
            }
            let frame = Frame::new(
                lowerer,
                &function.returns,
                &function.parameters,
                function.name.span,
            )?;
            return Ok((Callee::Direct(id), frame));
        }
        if let Some((_, builtin, results, arguments)) =
            BUILTINS.iter().find(|(builtin, ..)| *builtin == name)
        {
            let slots = |sizes: &[u32]| {
                let slot = |&bytes: &u32| Slot {
                    storage: Storage::Local(0),
                    bytes,
                };
                sizes.iter().map(slot).collect()
            };
            let frame = Frame::of_builtin(slots(results), slots(arguments));
            return Ok((Callee::Builtin(*builtin), frame));
        }
        if lowerer.functions.contains_key(name) {
            return Err(self.not_defined(name, span));
        }
        Err(self.undeclared(name, span))
    }

    fn indirect(
        &mut self,
        symbol: &Symbol,
        span: Span,
        list: Option<&'a Spanned<Written>>,
    ) -> Result<(Callee, Frame)> {
        let register = Spanned::new(Written::Symbol(symbol.clone()), span);
        let pointer = self.value(&register, DataType::B64, false)?;
        let Some(Spanned {
            value: Written::Symbol(list),
            span: list_span,
        }) = list
        else {
            return Err(self
                .error(span, "a call through a register needs a prototype")
                .with_help("name a `.callprototype` or a `.calltargets` list last"));
        };
        let found = self.body.scope.find(&list.name).map(|(meaning, _)| meaning);
        let lowerer = &mut self.body.lowerer;
        match found {
            Some(Meaning::List(Statement::CallPrototype {
                returns,
                parameters,
                ..
            })) => {
                let frame = Frame::new(lowerer, returns, parameters, *list_span)?;
                let candidates = Vec::new();
                Ok((
                    Callee::Indirect {
                        pointer,
                        candidates,
                    },
                    frame,
                ))
            }
            Some(Meaning::List(Statement::CallTargets { targets, .. })) => {
                let mut frame = None;
                for target in targets {
                    let defined = lowerer.function_id(target);
                    let Some(function) = defined.map(|_| lowerer.functions[target.as_str()]) else {
                        return Err(lowerer.error(
                            target.span,
                            format!("`{target}` is not defined in this module"),
                        ));
                    };
                    let own = Frame::new(
                        lowerer,
                        &function.returns,
                        &function.parameters,
                        function.name.span,
                    )?;
                    if frame.get_or_insert_with(|| own.clone()) != &own {
                        return Err(lowerer.error(
                            target.span,
                            format!("`{target}` has other parameters than `{}`", targets[0]),
                        ));
                    }
                }
                let candidates = Vec::new();
                Ok((
                    Callee::Indirect {
                        pointer,
                        candidates,
                    },
                    frame.unwrap_or_default(),
                ))
            }
            _ => Err(lowerer.error(
                *list_span,
                format!(
                    "`{}` is neither a `.callprototype` nor a `.calltargets` list",
                    list.name
                ),
            )),
        }
    }

    /// The caller's side of each result or argument, beside the callee's.
    fn transfers(
        &mut self,
        operands: &[Spanned<Written>],
        slots: &[Slot],
        what: &str,
        callee: Span,
    ) -> Result<Vec<(Storage, Slot)>> {
        if operands.len() != slots.len() {
            let plural = if slots.len() == 1 { "" } else { "s" };
            return Err(self.error(
                callee,
                format!(
                    "the function has {} {what}{plural}, the call {}",
                    slots.len(),
                    operands.len()
                ),
            ));
        }
        let mut transfers = Vec::new();
        for (index, (operand, slot)) in operands.iter().zip(slots).enumerate() {
            let storage = self.transfer(operand, *slot, &format!("{what} {}", index + 1))?;
            transfers.push((storage, *slot));
        }
        Ok(transfers)
    }

    fn transfer(&mut self, operand: &Spanned<Written>, slot: Slot, what: &str) -> Result<Storage> {
        let span = operand.span;
        if let Written::Symbol(symbol) = &operand.value
            && let Some((Meaning::Variable(variable), _)) = self.body.scope.find(&symbol.name)
            && variable.declared == StateSpace::Param
        {
            if variable.space != SymbolSpace::Local {
                return Err(self
                    .error(span, "a parameter of the kernel cannot be passed on")
                    .with_help("load it, and store it to a `.param` variable of the call"));
            }
            if variable.bytes != u64::from(slot.bytes) {
                return Err(self.error(
                    span,
                    format!(
                        "{what} has {} bytes in the function, `{}` has {}",
                        slot.bytes, symbol.name, variable.bytes
                    ),
                ));
            }
            return Ok(Storage::Local(variable.offset));
        }
        let ty = match slot.bytes {
            bytes @ (1 | 2 | 4 | 8) => DataType::of_bits(bytes * 8),
            bytes => {
                return Err(self.error(
                    span,
                    format!("{what} has {bytes} bytes and needs a `.param` variable"),
                ));
            }
        };
        if what.starts_with("result") {
            let (reg, _) = self.destination(operand, ty, false)?;
            return Ok(Storage::Value(Operand::Reg(reg)));
        }
        Ok(Storage::Value(self.value(operand, ty, false)?))
    }

    pub(super) fn plain(&mut self, op: Op) -> Result<Op> {
        self.flag("uni");
        self.count(0, 0)?;
        Ok(op)
    }

    pub(super) fn nanosleep(&mut self) -> Result<Op> {
        let ty = self.ty_of(&[DataType::U32])?;
        self.count(1, 1)?;
        self.src(0, ty)?;
        Ok(Op::Sleep)
    }

    /// `bar` and `barrier`
    pub(super) fn barrier(&mut self) -> Result<Op> {
        if self.flag("warp") {
            self.demand("sync")?;
            self.count(1, 1)?;
            let mask = self.src(0, DataType::B32)?;
            return Ok(Op::Collective {
                kind: Collective::WarpBarrier,
                dst: self.registers(&[]),
                sources: self.list(&[mask]),
            });
        }
        if self.flag("cluster") {
            return self.cluster_barrier();
        }
        self.flag("cta");
        let aligned = self.flag("aligned") || self.opcode() == "bar";
        #[derive(Clone, Copy)]
        enum Kind {
            Sync,
            Arrive,
            Reduce,
        }
        let kind = self.required(&[
            ("sync", Kind::Sync),
            ("arrive", Kind::Arrive),
            ("red", Kind::Reduce),
        ])?;
        let (kind, first, last) = match kind {
            Kind::Sync => {
                self.count(1, 2)?;
                (BarrierKind::Sync, 0, self.operand_count())
            }
            Kind::Arrive => {
                self.count(2, 2)?;
                (BarrierKind::Arrive, 0, 2)
            }
            Kind::Reduce => {
                let op = self.required(&[
                    ("popc", BarrierReduction::Count),
                    ("and", BarrierReduction::And),
                    ("or", BarrierReduction::Or),
                ])?;
                let ty = match op {
                    BarrierReduction::Count => self.ty_of(&[DataType::U32])?,
                    _ => self.ty_of(&[DataType::Pred])?,
                };
                self.count(3, 4)?;
                let last = self.operand_count() - 1;
                let kind = BarrierKind::Reduce {
                    op,
                    dst: self.dst(0, ty)?,
                    predicate: self.predicate(last)?,
                };
                (kind, 1, last)
            }
        };
        let id = self.src(first, DataType::U32)?;
        let threads = if last > first + 1 {
            Some(self.src(first + 1, DataType::U32)?)
        } else {
            None
        };
        Ok(Op::Barrier {
            kind,
            id,
            threads,
            aligned,
        })
    }

    fn cluster_barrier(&mut self) -> Result<Op> {
        self.flag("aligned");
        let arrives = self.required(&[("arrive", true), ("wait", false)])?;
        let relaxed = arrives && self.flag("relaxed");
        if arrives {
            self.flag("release");
        } else {
            self.flag("acquire");
        }
        self.count(0, 0)?;
        Ok(Op::ClusterBarrier {
            arrives,
            waits: !arrives,
            releases: !relaxed,
        })
    }

    fn scope(&mut self) -> Result<Scope> {
        self.required(&[
            ("cta", Scope::Cta),
            ("cluster", Scope::Cluster),
            ("gpu", Scope::Gpu),
            ("sys", Scope::Sys),
        ])
    }

    pub(super) fn fence(&mut self) -> Result<Op> {
        self.count(0, 0)?;
        if self.flag("proxy") {
            if self.flag("async") {
                self.space();
                return Ok(Op::Fence {
                    kind: FenceKind::ProxyAsync,
                    scope: Scope::Sys,
                });
            }
            // Different virtual addresses of one location: there are none here.
            if self.flag("alias") {
                return Ok(Op::Nop);
            }
            return Err(self.unsupported());
        }
        // A release of the thread's `mbarrier.init` only; that of everything contains it.
        self.flag("mbarrier_init");
        let kind = self
            .choice(&[
                ("sc", FenceKind::Sc),
                ("acq_rel", FenceKind::AcqRel),
                ("acquire", FenceKind::Acquire),
                ("release", FenceKind::Release),
            ])
            .unwrap_or(FenceKind::AcqRel);
        Ok(Op::Fence {
            kind,
            scope: self.scope()?,
        })
    }

    /// `membar.level` is `fence.sc` of the same reach (PTX ISA, "membar").
    pub(super) fn membar(&mut self) -> Result<Op> {
        self.count(0, 0)?;
        if self.flag("proxy") {
            return Err(self.unsupported());
        }
        let scope =
            self.required(&[("cta", Scope::Cta), ("gl", Scope::Gpu), ("sys", Scope::Sys)])?;
        Ok(Op::Fence {
            kind: FenceKind::Sc,
            scope,
        })
    }

    pub(super) fn grid_dependency(&mut self) -> Result<Op> {
        self.count(0, 0)?;
        self.required(&[
            ("launch_dependents", Op::LaunchDependents),
            ("wait", Op::GridDependencyWait),
        ])
    }
}

impl Lowerer<'_> {
    /// Calls through registers may reach every function of their shape whose address is known.
    pub(super) fn finish_indirect_calls(&mut self) -> Result<()> {
        let mut frames = Vec::new();
        for function in &self.queue {
            frames.push(if function.entry {
                None
            } else {
                let name = function.name.span;
                Some(Frame::new(
                    self,
                    &function.returns,
                    &function.parameters,
                    name,
                )?)
            });
        }
        for indirect in &self.indirect {
            let fitting = frames
                .iter()
                .enumerate()
                .filter(|(_, frame)| frame.as_ref() == Some(&indirect.frame))
                .map(|(id, _)| FunctionId(id as u32));
            if let Callee::Indirect { candidates, .. } =
                &mut self.program.calls[indirect.call].callee
            {
                candidates.extend(fitting);
            }
        }
        // A device function may use the dynamic part on behalf of any kernel.
        let functions = &mut self.program.functions;
        if functions.iter().any(|f| f.dynamic_shared && !f.entry) {
            for function in functions {
                function.dynamic_shared = true;
            }
        }
        Ok(())
    }
}
