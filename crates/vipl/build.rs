//! Gives libvipl.so its name for the dynamic linker: the 1 changes when a program built against it would
//! break.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvipl.so.1");
    }
}
