@echo off
rem Sets sari up on a machine that has only Python 3.11 or later. All arguments are those of install.py.
rem A Python is run before it is trusted: Windows has a `python` that only opens the Store.
setlocal
set "new_enough=import sys; sys.exit(sys.version_info < (3, 11))"
if not defined PYTHON goto launcher
set run="%PYTHON%"
%run% -c "%new_enough%" >nul 2>nul
if not errorlevel 1 goto found
:launcher
set "run=py -3"
%run% -c "%new_enough%" >nul 2>nul
if not errorlevel 1 goto found
set "run=python"
%run% -c "%new_enough%" >nul 2>nul
if not errorlevel 1 goto found
echo sari: Python 3.11 or later is needed and was not found. Install it from python.org, or set PYTHON to its path. 1>&2
exit /b 1

:found
%run% "%~dp0install.py" %*
