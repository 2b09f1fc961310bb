/* python.exe: what CPython's own launcher does, and what Linux asks of a process before it may use AMX. */
#include <stdio.h>
#include <windows.h>

typedef int (*Main)(int, wchar_t **);

enum { ARCH_PRCTL = 158, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

/* Windows gives a process the tiles of AMX at their first use, and so ONNX Runtime uses them unasked. Linux ends a process
   that has not asked, and Wine does not ask. The answer does not matter: without AMX nobody uses it. */
static void ask_for_amx(void) {
  long long result = ARCH_PRCTL;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"((long long)ARCH_REQ_XCOMP_PERM), "S"((long long)XFEATURE_XTILEDATA)
                   : "rcx", "r11", "memory");
}

int wmain(int count, wchar_t **arguments) {
  ask_for_amx();
  HMODULE python = LoadLibraryW(L"python311.dll");
  if (!python) {
    fprintf(stderr, "python311.dll cannot be loaded: error %lu\n", GetLastError());
    return 9;
  }
  return ((Main)(void *)GetProcAddress(python, "Py_Main"))(count, arguments);
}
