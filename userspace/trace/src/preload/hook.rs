//! How a function is interposed.

/// Defines functions that stand in front of those of the same name. The first parameter names a closure that
/// calls the function behind.
macro_rules! hook {
    ($(fn $name:ident($next:ident $(, $argument:ident: $type:ty)* $(,)?) -> $result:ty $body:block)*) => {$(
        #[cfg_attr(interpose, unsafe(no_mangle))]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: $crate::preload::sys::Next = $crate::preload::sys::Next::new(concat!(stringify!($name), "\0"));
            let function = NEXT.address();
            if function.is_null() {
                // The program cannot have linked what no library has.
                std::process::abort();
            }
            #[allow(unused_variables, reason = "some hooks replace the call")]
            let $next = |$($argument: $type),*| -> $result {
                // SAFETY: the symbol of this name has this signature, and the arguments are the caller's.
                unsafe {
                    let function: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(function);
                    function($($argument),*)
                }
            };
            $body
        }
    )*};
}

pub(crate) use hook;
