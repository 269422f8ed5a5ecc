//! Random syntax trees.

use gsan_ptx::syntax::ast::*;
use gsan_ptx::syntax::span::{Span, Spanned};
use gsan_ptx::syntax::types::{StateSpace, Type};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Span::default())
}

fn text() -> impl Strategy<Value = String> {
    "[$%_]?[a-z][a-z0-9_$]{0,4}"
}

fn name() -> impl Strategy<Value = Name> {
    text().prop_map(spanned)
}

fn string() -> impl Strategy<Value = String> {
    r#"([ !#-\[\]-~é]|\\["\\]){0,6}"#
}

fn strings() -> impl Strategy<Value = Vec<String>> {
    vec(string(), 1..3)
}

fn constant() -> impl Strategy<Value = Constant> {
    prop_oneof![
        (any::<u64>(), any::<bool>())
            .prop_map(|(bits, unsigned)| Constant::Integer { bits, unsigned }),
        Just(Constant::signed(i64::MIN)),
        any::<u32>().prop_map(Constant::Single),
        any::<u64>().prop_map(Constant::Double),
    ]
}

fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), -9i64..9, any::<i64>()]
}

fn layout() -> impl Strategy<Value = Layout> {
    let align = option::of((0u32..32).prop_map(|shift| 1 << shift));
    let vector = option::of(select(&[2u32, 4, 8][..]));
    (align, vector, select(Type::ALL)).prop_map(|(align, vector, ty)| Layout {
        align,
        vector,
        ty: spanned(ty),
    })
}

fn dimensions() -> impl Strategy<Value = Vec<Option<u64>>> {
    vec(option::of(any::<u64>()), 0..3)
}

fn space() -> impl Strategy<Value = StateSpace> {
    let spaces: Vec<StateSpace> = StateSpace::ALL
        .iter()
        .copied()
        .filter(|space| *space != StateSpace::Reg)
        .collect();
    select(spaces)
}

fn linkage() -> impl Strategy<Value = Linkage> {
    select(
        &[
            Linkage::Internal,
            Linkage::Visible,
            Linkage::Weak,
            Linkage::Common,
            Linkage::Extern,
        ][..],
    )
}

fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
    let attribute =
        ("[a-z]{1,5}", vec(any::<u64>(), 0..3)).prop_map(|(name, arguments)| Attribute {
            name: spanned(name),
            arguments,
        });
    vec(attribute, 0..3)
}

fn initializer() -> impl Strategy<Value = Initializer> {
    let symbol = (
        text(),
        offset(),
        prop_oneof![
            Just((false, None)),
            Just((true, None)),
            any::<u64>().prop_map(|mask| (false, Some(mask)))
        ],
    )
        .prop_map(|(name, offset, (generic, mask))| Initializer::Symbol {
            name,
            offset,
            generic,
            mask,
        });
    let leaf = prop_oneof![constant().prop_map(Initializer::Constant), symbol];
    leaf.prop_recursive(3, 8, 3, |inner| {
        vec(inner.prop_map(spanned), 0..3).prop_map(Initializer::List)
    })
}

fn variables() -> impl Strategy<Value = Variables> {
    let variable = (name(), dimensions(), option::of(initializer())).prop_map(
        |(name, dimensions, initial)| Variable {
            name,
            dimensions,
            initial: initial.map(spanned),
        },
    );
    (
        linkage(),
        space(),
        attributes(),
        layout(),
        vec(variable, 1..3),
    )
        .prop_map(
            |(linkage, space, attributes, layout, variables)| Variables {
                linkage,
                space: spanned(space),
                attributes,
                layout,
                variables,
            },
        )
}

fn parameters() -> impl Strategy<Value = Vec<Parameter>> {
    let pointer = (
        option::of(space()),
        option::of((0u32..32).prop_map(|shift| 1 << shift)),
    )
        .prop_map(|(space, align)| Pointee { space, align });
    let parameter = (
        any::<bool>(),
        layout(),
        option::of(pointer),
        option::of(name()),
        dimensions(),
    )
        .prop_map(|(reg, layout, pointer, name, dimensions)| Parameter {
            space: spanned(if reg {
                StateSpace::Reg
            } else {
                StateSpace::Param
            }),
            layout,
            pointer,
            name,
            dimensions,
        });
    vec(parameter, 0..3)
}

fn directives() -> impl Strategy<Value = Vec<Directive>> {
    let numbers = |word: &'static str, values: std::ops::RangeInclusive<usize>| {
        vec(any::<u64>(), values).prop_map(move |values| Directive {
            name: spanned(word.to_owned()),
            values,
            strings: Vec::new(),
        })
    };
    let directive = prop_oneof![
        numbers("reqntid", 1..=3),
        numbers("maxnreg", 1..=1),
        numbers("noreturn", 0..=0),
        strings().prop_map(|strings| Directive {
            name: spanned("pragma".to_owned()),
            values: Vec::new(),
            strings,
        }),
    ];
    vec(directive, 0..3)
}

fn symbol() -> impl Strategy<Value = Symbol> {
    let component = select(&[Component::X, Component::Y, Component::Z, Component::W][..]);
    (text(), option::of(component)).prop_map(|(name, component)| Symbol { name, component })
}

fn operand() -> impl Strategy<Value = Operand> {
    let index = prop_oneof![
        any::<u64>().prop_map(Index::Constant),
        (symbol(), offset()).prop_map(|(symbol, offset)| Index::Register(symbol, offset)),
    ];
    let leaf = prop_oneof![
        4 => symbol().prop_map(Operand::Symbol),
        1 => symbol().prop_map(Operand::Not),
        1 => (text(), offset()).prop_map(|(name, offset)| Operand::Offset(name, offset)),
        1 => constant().prop_map(Operand::Constant),
        1 => (text(), index).prop_map(|(name, index)| Operand::Element(name, index)),
        1 => Just(Operand::Sink),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = |least| vec(inner.clone().prop_map(spanned), least..3);
        let first = prop_oneof![
            symbol().prop_map(Operand::Symbol),
            Just(Operand::Sink),
            list(1).prop_map(Operand::Vector),
        ];
        let second = prop_oneof![symbol().prop_map(Operand::Symbol), Just(Operand::Sink)];
        let base = prop_oneof![
            (symbol(), offset()).prop_map(|(symbol, offset)| (AddressBase::Symbol(symbol), offset)),
            any::<u64>().prop_map(|address| (AddressBase::Absolute(address), 0)),
        ];
        prop_oneof![
            list(1).prop_map(Operand::Vector),
            (first, second).prop_map(|(a, b)| Operand::Pair(Box::new((spanned(a), spanned(b))))),
            (base, list(0)).prop_map(|((base, offset), coordinates)| {
                Operand::Address(Address {
                    base,
                    offset,
                    coordinates,
                })
            }),
        ]
    })
}

fn operands(least: usize) -> impl Strategy<Value = Vec<Spanned<Operand>>> {
    vec(operand().prop_map(spanned), least..4)
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let guard =
        (any::<bool>(), name()).prop_map(|(negated, predicate)| Guard { negated, predicate });
    let modifiers = vec("[a-z][a-z0-9_]{0,4}(::[0-9A-Za-z_]{1,4}){0,2}", 0..4);
    let call = (operands(0), name(), operands(0)).prop_map(|(results, function, arguments)| {
        let function = Symbol {
            name: function.value,
            component: None,
        };
        vec![
            spanned(Operand::Group(results)),
            spanned(Operand::Symbol(function)),
            spanned(Operand::Group(arguments)),
        ]
    });
    let body = prop_oneof![
        4 => ("[a-z]{1,4}", operands(0)),
        1 => (Just("call".to_owned()), call),
    ];
    (option::of(guard), modifiers, body).prop_map(|(guard, modifiers, (opcode, operands))| {
        Instruction {
            guard,
            opcode: spanned(opcode),
            modifiers: modifiers.into_iter().map(spanned).collect(),
            operands,
        }
    })
}

fn place() -> impl Strategy<Value = SourcePlace> {
    (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(file, line, column)| SourcePlace {
        file,
        line,
        column,
    })
}

fn source_file() -> impl Strategy<Value = SourceFile> {
    let stamp = option::of((any::<u64>(), any::<u64>()));
    (any::<u32>(), string(), stamp).prop_map(|(index, path, stamp)| SourceFile {
        index,
        path,
        stamp,
    })
}

fn statements() -> impl Strategy<Value = Vec<Statement>> {
    let registers = (layout(), vec((name(), option::of(any::<u32>())), 1..3))
        .prop_map(|(layout, names)| Registers { layout, names });
    let inlined =
        ((name(), offset()), place()).prop_map(|(function_name, at)| Inlined { function_name, at });
    let location =
        (place(), option::of(inlined)).prop_map(|(place, inlined)| Location { place, inlined });
    let targets = || (name(), vec(name(), 1..3));
    let prototype = (name(), parameters(), parameters(), directives()).prop_map(
        |(name, returns, parameters, directives)| Statement::CallPrototype {
            name,
            returns,
            parameters,
            directives,
        },
    );
    let leaf = prop_oneof![
        6 => instruction().prop_map(|i| Statement::Instruction(spanned(i))),
        1 => registers.prop_map(Statement::Registers),
        1 => variables().prop_map(Statement::Variables),
        1 => name().prop_map(Statement::Label),
        1 => location.prop_map(Statement::Location),
        1 => source_file().prop_map(Statement::File),
        1 => strings().prop_map(Statement::Pragma),
        1 => targets().prop_map(|(name, targets)| Statement::BranchTargets { name, targets }),
        1 => targets().prop_map(|(name, targets)| Statement::CallTargets { name, targets }),
        1 => prototype,
    ];
    let statement = leaf.prop_recursive(3, 12, 4, |inner| {
        vec(inner, 0..4).prop_map(|block| Statement::Block(spanned(block)))
    });
    vec(statement, 0..8)
}

fn function() -> impl Strategy<Value = Function> {
    (
        (linkage(), any::<bool>(), attributes()),
        parameters(),
        name(),
        parameters(),
        directives(),
        option::of(statements().prop_map(spanned)),
    )
        .prop_map(
            |((linkage, entry, attributes), returns, name, parameters, directives, body)| {
                Function {
                    linkage,
                    entry,
                    attributes,
                    returns: if entry { Vec::new() } else { returns },
                    name,
                    parameters,
                    directives,
                    body,
                }
            },
        )
}

/// Any module that can be written.
pub(crate) fn module() -> impl Strategy<Value = Module> {
    let item = prop_oneof![
        3 => function().prop_map(Item::Function),
        2 => variables().prop_map(Item::Variables),
        1 => source_file().prop_map(Item::File),
        1 => strings().prop_map(Item::Pragma),
        1 => (name(), name()).prop_map(|(name, aliasee)| Item::Alias { name, aliasee }),
    ];
    (
        any::<(u32, u32)>(),
        vec(name(), 1..3),
        option::of(select(&[32u32, 64][..])),
        vec(item, 0..4),
    )
        .prop_map(|(version, targets, address_size, items)| Module {
            version,
            targets,
            address_size,
            items,
        })
}
