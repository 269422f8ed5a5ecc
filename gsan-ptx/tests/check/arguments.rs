//! What is said about arguments that are wrong or do not fit the kernel.

use std::path::Path;

use gsan_ptx::check::Error;
use gsan_ptx::check::argument::{Argument, Contents};
use gsan_ptx::check::contents::{Element, Init};
use gsan_ptx::check::prepare::{Prepared, prepare};
use gsan_ptx::check::spec::{Buffer, Launch, Spec, dimensions};
use gsan_ptx::diagnostic::Source;

const KERNEL: &str = "\
.version 8.7
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.shared .b8 fixed[1024];
.visible .entry k(.param .u64 a, .param .u32 n, .param .align 4 .b8 s[12], .param .u64 .ptr t)
{
  .reg .b32 %r<2>;
  .reg .b64 %t;
  mov.u32 %r1, dynamic;
  ld.param.b64 %t, [t];
  ret;
}
";

fn prepared(ptx: &str, spec: &Spec) -> Result<Prepared, Error> {
    let source = Source {
        file: "k.ptx",
        text: ptx,
    };
    prepare(source, spec, Path::new("."))
}

fn from_words(words: &[&str], launch: Launch) -> Result<Spec, Error> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Ok(Spec::from_words(&words, launch)?)
}

fn from_toml(text: &str) -> Result<Spec, Error> {
    Spec::from_toml(&Source {
        file: "k.toml",
        text,
    })
}

fn block_of_32() -> Launch {
    Launch {
        block: Some([32, 1, 1]),
        ..Launch::default()
    }
}

/// An error as the command line shows it.
fn shown(error: Error) -> String {
    match error {
        Error::Ptx(diagnostic) | Error::ArgumentFile(diagnostic) => diagnostic.render(false),
        error => error.to_string(),
    }
}

#[test]
fn words_of_a_command_line() {
    let spec = from_words(
        &[
            "buf:64:f32=rand:-1:1",
            "i32:-1",
            "bytes:00Ff10",
            "buf:8",
            "buf:4:u8=file:x=y",
        ],
        Launch::default(),
    )
    .unwrap();
    let buffer = |name: &str, bytes, ty, init| Buffer {
        name: name.to_owned(),
        contents: Contents { bytes, ty, init },
    };
    assert_eq!(
        spec.buffers,
        [
            buffer(
                "argument 0",
                64,
                Element::F32,
                Init::RandomIn("-1".to_owned(), "1".to_owned())
            ),
            buffer("argument 3", 8, Element::U8, Init::Zero),
            buffer("argument 4", 4, Element::U8, Init::File("x=y".into())),
        ]
    );
    assert_eq!(
        spec.launches[0].arguments,
        [
            Argument::Buffer {
                buffer: 0,
                offset: 0
            },
            Argument::Scalar {
                ty: Element::I32,
                bytes: vec![0xff; 4]
            },
            Argument::Bytes(vec![0x00, 0xff, 0x10]),
            Argument::Buffer {
                buffer: 1,
                offset: 0
            },
            Argument::Buffer {
                buffer: 2,
                offset: 0
            },
        ]
    );
}

#[test]
fn wrong_words_of_a_command_line() {
    let words = [
        "4096",
        "buff:64",
        "buf:many",
        "buf:64:f31",
        "i32:x",
        "i32:3000000000",
        "u8:-1",
        "f32:one",
        "bytes:0",
        "bytes:0g",
        "bytes:",
        "tensormap:a",
        "foo:1",
    ];
    let messages = words.map(|word| {
        from_words(&[word], Launch::default())
            .unwrap_err()
            .to_string()
    });
    insta::assert_snapshot!(messages.join("\n"));
    let sizes = ["", "0", "1,2,3,4", "x", "1,,2", "-1"];
    let messages = sizes.map(|size| dimensions(size).unwrap_err().to_string());
    insta::assert_snapshot!("sizes", messages.join("\n"));
    assert_eq!(dimensions("16, 8").unwrap(), [16, 8, 1]);
}

#[test]
fn a_toml_file_says_everything() {
    let spec = from_toml(
        "shared = 16\n\
         [[buffer]]\nname = \"a\"\nelements = 4\ntype = \"f16\"\ninit = [1, 2.5]\n\
         [[buffer]]\nname = \"b\"\nbytes = 8\ninit = 7\n\
         [[launch]]\nentry = \"k\"\ngrid = [2, 3]\nblock = 64\nstream = 1\ndevice = 2\n\
         programmatic = true\nwait = [\"e\"]\nrecord = \"e\"\nsync = true\n\
         args = [\"buf:b+4\", \"u64:5\"]\n\
         [expect]\nverdict = \"clean\"\n",
    )
    .unwrap();
    assert_eq!(spec.shared, Some(16));
    assert_eq!(spec.buffers[0].contents.bytes, 8);
    assert_eq!(
        spec.buffers[0].contents.init,
        Init::List(vec!["1".to_owned(), "2.5".to_owned()])
    );
    assert_eq!(
        spec.launches,
        [Launch {
            entry: Some("k".to_owned()),
            grid: [2, 3, 1],
            block: Some([64, 1, 1]),
            cluster: [1; 3],
            stream: 1,
            device: 2,
            programmatic: true,
            waits: vec!["e".to_owned()],
            record: Some("e".to_owned()),
            sync: true,
            arguments: vec![
                Argument::Buffer {
                    buffer: 1,
                    offset: 4
                },
                Argument::Scalar {
                    ty: Element::U64,
                    bytes: vec![5, 0, 0, 0, 0, 0, 0, 0]
                },
            ],
        }]
    );
}

#[test]
fn wrong_toml_files() {
    let messages = [
        "",
        "[[launch]\n",
        "[[lunch]]\n",
        "[[launch]]\ngird = 1\n",
        "[[launch]]\ngrid = [0, 1]\n",
        "[[launch]]\ngrid = \"many\"\n",
        "[[launch]]\nargs = [\"buf:a\"]\n",
        "[[buffer]]\nname = \"alpha\"\nbytes = 4\n[[launch]]\nargs = [\"i32:1\", \"buf:alhpa+4\"]\n",
        "[[buffer]]\nname = \"a\"\nbytes = 4\n[[launch]]\nargs = [\"buf:a+x\"]\n",
        "[[launch]]\nargs = [\"i33:1\"]\n",
        "[[buffer]]\nname = \"a\"\n[[launch]]\n",
        "[[buffer]]\nname = \"a\"\nbytes = 4\nelements = 4\n[[launch]]\n",
        "[[buffer]]\nname = \"a\"\nbytes = 4\ntype = \"f33\"\n[[launch]]\n",
        "[[buffer]]\nname = \"a\"\nbytes = -4\n[[launch]]\n",
        "[[buffer]]\nname = \"a\"\nbytes = 4\n[[buffer]]\nname = \"a\"\nbytes = 4\n[[launch]]\n",
        "[[buffer]]\nname = \"a\"\nelements = 9000000000000000000\ntype = \"f32\"\n[[launch]]\n",
    ]
    .map(|text| shown(from_toml(text).unwrap_err()));
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn arguments_lie_where_the_kernel_looks_for_them() {
    let words = ["buf:16", "i32:7", "bytes:0102030405060708090a0b0c"];
    let spec = from_words(&words, block_of_32()).unwrap();
    let prepared = prepared(KERNEL, &spec).unwrap();
    let params = &prepared.launches[0].params;
    assert_eq!(params[..8], prepared.buffers[0].to_le_bytes());
    assert_eq!(params[8..12], [7, 0, 0, 0]);
    assert_eq!(params[12..24], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(params[24..], [0; 8]);
    assert_eq!(
        prepared.notes,
        ["pointer `t` of kernel `k` is not given and is null"]
    );
}

#[test]
fn dynamic_shared_memory_is_what_the_target_allows() {
    let words = ["buf:16", "i32:7", "bytes:0102030405060708090a0b0c"];
    let mut spec = from_words(&words, block_of_32()).unwrap();
    for (target, kib) in [
        ("sm_75", 64),
        ("sm_80", 163),
        ("sm_86", 99),
        ("sm_90a", 227),
    ] {
        let ptx = KERNEL.replace("sm_80", target);
        let prepared = prepared(&ptx, &spec).unwrap();
        assert_eq!(
            prepared.launches[0].dynamic_shared,
            kib * 1024 - 1024,
            "{target}"
        );
    }
    spec.shared = Some(48);
    assert_eq!(
        prepared(KERNEL, &spec).unwrap().launches[0].dynamic_shared,
        48
    );
}

#[test]
fn arguments_that_do_not_fit_the_kernel() {
    let s = "bytes:000000000000000000000000";
    let launch = block_of_32;
    let case = |words: &[&str], launch: Launch| {
        shown(prepared(KERNEL, &from_words(words, launch).unwrap()).unwrap_err())
    };
    let two = KERNEL.to_owned() + ".entry other() .reqntid 64 { ret; }";
    let of_two =
        |launch: Launch| shown(prepared(&two, &from_words(&[], launch).unwrap()).unwrap_err());
    let named = |name: &str| Launch {
        entry: Some(name.to_owned()),
        ..launch()
    };
    let messages = [
        case(&[], launch()),
        case(&["buf:4", "i32:1"], launch()),
        case(&["buf:4", "i64:1", s], launch()),
        case(&["buf:4", "buf:4", s], launch()),
        case(&["i32:0", "i32:1", s], launch()),
        case(&["buf:4", "i32:1", "bytes:00"], launch()),
        case(&["buf:4", "i32:1", s, "u64:0", "i32:0"], launch()),
        case(&["buf:4", "i32:1", s], Launch::default()),
        case(
            &["buf:4", "i32:1", s],
            Launch {
                block: Some([2048, 1, 1]),
                ..launch()
            },
        ),
        case(
            &["buf:4", "i32:1", s],
            Launch {
                cluster: [2, 1, 1],
                ..launch()
            },
        ),
        case(&["buf:4:u8=300", "i32:1", s], launch()),
        case(&["buf:4:u8=file:/no/such/file", "i32:1", s], launch()),
        case(&["buf:99999999999999", "i32:1", s], launch()),
        of_two(launch()),
        of_two(named("othre")),
        of_two(named("nothing")),
        of_two(named("other")),
        shown(
            prepared(
                ".version 8.7\n.target sm_80\n",
                &from_words(&[], launch()).unwrap(),
            )
            .unwrap_err(),
        ),
        shown(prepared("not PTX", &from_words(&[], launch()).unwrap()).unwrap_err()),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
