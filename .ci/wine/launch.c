/* python.exe: what CPython's own launcher does. */
#include <stdio.h>
#include <windows.h>

typedef int (*Main)(int, wchar_t **);

int wmain(int count, wchar_t **arguments) {
  HMODULE python = LoadLibraryW(L"python311.dll");
  if (!python) {
    fprintf(stderr, "python311.dll cannot be loaded: error %lu\n", GetLastError());
    return 9;
  }
  return ((Main)(void *)GetProcAddress(python, "Py_Main"))(count, arguments);
}
