//! Compiles the device library as functions of the host, where that is asked for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "host")]
    compile();
}

#[cfg(feature = "host")]
fn compile() {
    for sources in ["host", "device", "include", "../gsan-core/include"] {
        println!("cargo::rerun-if-changed={sources}");
    }
    for records in ["2", "4"] {
        cc::Build::new()
            .cpp(true)
            // Nothing of the C++ library is used.
            .cpp_link_stdlib(None)
            .std("c++17")
            .flag("-fno-exceptions")
            .flag("-fno-rtti")
            .flag("-fvisibility=hidden")
            .flag("-fno-strict-aliasing")
            .opt_level(2)
            .warnings(false)
            .define("GSAN_HOST", None)
            .define("GSAN_RECORDS", records)
            // Inline functions of the two builds differ.
            .define("gsan", format!("gsan_{records}").as_str())
            .include("include")
            .include("../gsan-core/include")
            .file("host/ctas.cc")
            .compile(&format!("gsan-host-ctas-{records}"));
    }
}
