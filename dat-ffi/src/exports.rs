//! Versioned names, by which programs find the functions of a library.

/// Exports the calls of [`calls_of_dat!`](crate::calls_of_dat), and others of their module.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! export_calls {
    (
        $version:literal, $($module:ident)::+, $other:ident
        calls {
            $($name:ident($($argument:tt)*) $(/ ($($later:tt)*))? $($gone:ident)?
                $slot:literal = $($ours:ident)::+;)*
        }
        later { $($none:tt)* }
        table { $($table:tt)* }
        registry { $($own:ident($($own_argument:tt)*) = $does:path;)* }
    ) => {
        $crate::export_with_version! { @ $version ($($module)::+) $($name,)* $($own,)* $other }
    };
}

/// Exports functions of a module under their own names with a version.
///
/// The compiler cannot give versions, so each export is a jump to the function. A script for the
/// linker has to define the version.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! export_with_version {
    ($version:literal, $($module:ident)::+: $($names:tt)*) => {
        $crate::export_with_version! { @ $version ($($module)::+) $($names)* }
    };
    (@ $version:literal $module:tt $($name:ident),* $(,)?) => {
        $($crate::export_with_version! { @ one $version $module $name })*
    };
    (@ one $version:literal ($($module:ident)::+) $name:ident) => {
        ::std::arch::global_asm!(
            concat!(".pushsection .text.exported_", stringify!($name), ",\"ax\",@progbits"),
            concat!(".globl exported_", stringify!($name)),
            concat!(".type exported_", stringify!($name), ",@function"),
            concat!("exported_", stringify!($name), ":"),
            "jmp {function}",
            concat!(".size exported_", stringify!($name), ", . - exported_", stringify!($name)),
            concat!(".symver exported_", stringify!($name), ", ", stringify!($name), "@@", $version),
            ".popsection",
            function = sym $($module)::+::$name,
        );
    };
}
