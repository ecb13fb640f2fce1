//! Coverage-guided search: libFuzzer over the target that `KIBAN_FUZZ` names. `make fuzz` builds and runs it.
#![no_main]

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static TARGET: OnceLock<kiban_fuzz::Target> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("KIBAN_FUZZ").unwrap_or_default();
        let found = kiban_fuzz::targets().into_iter().find(|target| target.name == name);
        found.unwrap_or_else(|| panic!("KIBAN_FUZZ names no target: {name:?}"))
    });
    (target.run)(data, &mut kiban_fuzz::Features::to(&mut |_| {}));
});
